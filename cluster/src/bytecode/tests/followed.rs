//! What is followed, what is not, and what is predicted then.

use super::*;
use crate::bytecode::Predicted;

const BIPUSH: u8 = 0x10;
const ILOAD_1: u8 = 0x1b;
const ISTORE_1: u8 = 0x3c;
const IINC: u8 = 0x84;
const IF_ICMPGE: u8 = 0xa2;

const OBJECT: &str = "java/lang/Object";

/// What is predicted of the only program.
fn only(classes: Vec<Vec<u8>>) -> Predicted {
    let mut found = program(classes).predict(None).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// A map class that makes these calls, one after the other, and what is predicted of it.
fn calls(calls: &[(&str, &str, &str)], others: Vec<Vec<u8>>) -> Predicted {
    let mut map = Assembler::class("a/Map", MAPPER);
    let mut code: Vec<u8> = Vec::new();
    for (class, name, descriptor) in calls {
        code.extend(map.call(class, name, descriptor));
    }
    code.push(RETURN);
    let map = map.method("map", MAP, 0, &code).bytes();
    only([vec![map], others].concat())
}

fn with_help(name: &str, parent: &str, flags: u16, length: usize) -> Vec<u8> {
    Assembler::class(name, parent).method("help", "()V", flags, &straight(length)).bytes()
}

#[track_caller]
fn assert_unknown(found: &Predicted, says: &str) {
    assert_eq!((found.predicted, found.assumed_computing_rate), (None, None), "{found:?}");
    assert!(found.note.as_ref().unwrap().contains(says), "{found:?}");
}

#[test]
fn a_short_path_with_a_call_that_is_not_followed_says_nothing_and_names_the_call() {
    for (class, name, says) in [
        ("not/There", "help", "not followed: not.There.help (in no jar)"),
        ("a/Native", "help", "not followed: a.Native.help (native)"),
        ("a/Abstract", "help", "not followed: a.Abstract.help (no body)"),
        ("java/lang/reflect/Method", "invoke", "java.lang.reflect.Method.invoke (reflection)"),
        ("java/security/MessageDigest", "digest", "not followed: java.security.MessageDigest"),
        ("org/apache/hadoop/mapreduce/Mapper$Context", "write", "Mapper$Context.write"),
    ] {
        let native = with_help("a/Native", OBJECT, NATIVE, 1);
        let none = with_help("a/Abstract", OBJECT, ABSTRACT, 1);
        let found = calls(&[(class, name, "()V")], vec![native, none]);
        assert_unknown(&found, says);
        assert_eq!((found.longest_path, found.not_followed.len()), (Some(2), 1));
    }
    // A long path is long whatever else is called.
    let long = with_help("a/Long", OBJECT, 0, 600);
    let found = calls(&[("not/There", "help", "()V"), ("a/Long", "help", "()V")], vec![long]);
    assert_eq!((found.predicted, found.note), (Some(Predicts::Cpu), None));
}

#[test]
fn what_waits_for_each_record_is_io_and_what_is_long_besides_is_not_known() {
    let sleep = ("java/lang/Thread", "sleep", "(J)V");
    let found = calls(&[sleep, ("org/apache/hadoop/io/Text", "getLength", "()I")], vec![]);
    assert_eq!((found.predicted, found.note), (Some(Predicts::Io), None));
    let long = with_help("a/Long", OBJECT, 0, 600);
    let found = calls(&[sleep, ("a/Long", "help", "()V")], vec![long]);
    assert_unknown(&found, "may wait in java.lang.Thread.sleep");
    let found = calls(&[sleep, ("java/util/zip/Deflater", "deflate", "([B)I")], vec![]);
    assert_unknown(&found, "java.util.zip.Deflater.deflate");
    let found = calls(&[("java/io/FileDescriptor", "sync", "()V")], vec![]);
    assert_unknown(&found, "may wait in java.io.FileDescriptor.sync");
}

/// 0 iconst_0; 1 ifeq 7; 4 sleep; 7 return.
#[test]
fn what_waits_on_some_paths_only_is_not_io() {
    let mut map = Assembler::class("a/Map", MAPPER);
    let sleep = map.call("java/lang/Thread", "sleep", "(J)V");
    let code = [&[ICONST_0, IFEQ, 0, 6], sleep.as_slice(), &[RETURN]].concat();
    assert_unknown(&only(vec![map.method("map", MAP, 0, &code).bytes()]), "may wait in");
}

/// for (i = 0; i < limit; i++) { 3 instructions }: the test is at 2 or 3.
fn counted(limit: &[u8]) -> Vec<u8> {
    let body = [NOP, NOP, NOP, IINC, 1, 1];
    let back = 1 + limit.len() + 3 + body.len();
    let mut code = vec![ICONST_0, ISTORE_1, ILOAD_1];
    code.extend(limit);
    code.extend([IF_ICMPGE, 0, (3 + body.len() + 3) as u8]);
    code.extend(body);
    code.extend([GOTO, 0xff, (256 - back) as u8, RETURN]);
    code
}

#[test]
fn a_loop_of_known_count_is_multiplied_and_another_one_makes_a_lower_bound() {
    let found = only(vec![mapper("a/Map", &counted(&[BIPUSH, 100]))]);
    assert_eq!((found.longest_path, found.loops), (Some(11), Some(1)), "once, as the source");
    assert_eq!(found.predicted, Some(Predicts::Cpu), "100 rounds of 8");
    let found = only(vec![mapper("a/Map", &counted(&[BIPUSH, 5]))]);
    assert_eq!(found.predicted, Some(Predicts::Io), "5 rounds of 8");
    assert_unknown(&only(vec![mapper("a/Map", &counted(&[ILOAD_1]))]), "a loop has no known count");
}

#[test]
fn recursion_is_a_loop_without_a_count() {
    let mut map = Assembler::class("a/Map", MAPPER);
    let code = [map.call("a/Map", "map", MAP).as_slice(), &[RETURN]].concat();
    let found = only(vec![map.method("map", MAP, 0, &code).bytes()]);
    assert_unknown(&found, "a loop has no known count");
    assert_eq!(found.loops, Some(1));
}

/// `map` of the base calls `help` of this object: short in the base, long in one class below.
#[test]
fn a_call_on_this_object_runs_what_the_class_asked_about_has() {
    let mut base = Assembler::class("a/Base", MAPPER);
    base.flags |= ABSTRACT;
    let code = [base.call("a/Base", "help", "()V").as_slice(), &[RETURN]].concat();
    let base = base.method("map", MAP, 0, &code).method("help", "()V", 0, &straight(9)).bytes();
    let long = with_help("a/Long", "a/Base", 0, 600);
    let same = Assembler::class("a/Same", "a/Base").bytes();
    let found = program(vec![base.clone(), long.clone(), same]).predict(None).unwrap();
    assert_eq!((found[0].longest_path, found[0].predicted), (Some(602), Some(Predicts::Cpu)));
    assert_eq!((found[1].longest_path, found[1].predicted), (Some(11), Some(Predicts::Io)));

    let mut map = Assembler::class("b/Map", MAPPER);
    let code = [map.call("a/Base", "help", "()V").as_slice(), &[RETURN]].concat();
    let map = map.method("map", MAP, 0, &code).bytes();
    let program = program(vec![base, long, map]);
    let found = program.predict(Some("b.Map")).unwrap().remove(0);
    assert_unknown(&found, "it is not known which method runs for a.Base.help");
}

#[test]
fn setup_and_cleanup_count_and_a_map_class_may_have_only_these() {
    let long = straight(600);
    let class = Assembler::class("a/Map", MAPPER).method("map", MAP, 0, &straight(3));
    let found = only(vec![
        class.method("cleanup", MAP.replace("Ljava/lang/Object;", "").as_str(), 0, &long).bytes(),
    ]);
    assert_eq!((found.longest_path, found.predicted), (Some(600), Some(Predicts::Cpu)));
    let class =
        Assembler::class("a/Map", MAPPER).method("setup", "(La/Mapper$Context;)V", 0, &straight(3));
    assert_unknown(&only(vec![class.bytes()]), "Hadoop's own map");
}

#[test]
fn a_map_runnable_is_a_map_class() {
    let run = "(Lorg/apache/hadoop/mapred/RecordReader;Lorg/apache/hadoop/mapred/OutputCollector;\
        Lorg/apache/hadoop/mapred/Reporter;)V";
    let class =
        Assembler::class("a/Runs", OBJECT).interface("org/apache/hadoop/mapred/MapRunnable");
    let found = only(vec![class.method("run", run, 0, &straight(600)).bytes()]);
    assert_eq!((found.kind, found.longest_path), (Kind::Map, Some(600)));
}

#[test]
fn an_ancestor_that_is_in_no_jar_is_named_and_found_in_a_library() {
    let derived = || vec![("d.class".to_owned(), Assembler::class("a/Derived", "w/Base").bytes())];
    let job = Contents { classes: derived(), ..Contents::default() };
    let alone = Program::new(job, Vec::new());
    assert!(alone.predict(Some("Derived")).unwrap().is_empty());
    assert_eq!(alone.orphans(Some("Derived")), [("a.Derived".to_owned(), "w.Base".to_owned())]);

    let base = mapper("w/Base", &straight(600));
    let files: [(&str, &[u8]); 1] = [("w/Base.class", &base)];
    let library = read_bytes(&jar(&files), &LIMITS).unwrap();
    let job = Contents { classes: derived(), ..Contents::default() };
    let both = Program::new(job, vec![library]);
    let found = both.predict(None).unwrap();
    assert_eq!(found.len(), 1, "a library has no programs of its own: {found:?}");
    assert_eq!((found[0].class.as_str(), found[0].longest_path), ("a.Derived", Some(600)));
    assert!(both.orphans(None).is_empty());
}

#[test]
fn the_files_for_the_version_of_java_that_runs_count() {
    let [any, nine, seventeen] = [3, 9, 17].map(|length| mapper("a/Map", &straight(length)));
    let only_new = mapper("a/New", &straight(4));
    let path_of = |manifest: &[u8], java: u32, name: &str| {
        let files: [(&str, &[u8]); 5] = [
            ("META-INF/versions/17/a/Map.class", &seventeen),
            ("a/Map.class", &any),
            ("META-INF/versions/9/a/Map.class", &nine),
            ("META-INF/versions/9/a/New.class", &only_new),
            ("META-INF/MANIFEST.MF", manifest),
        ];
        let contents = read_bytes(&jar(&files), &Limits { java, ..LIMITS }).unwrap();
        let found = Program::new(contents, Vec::new()).predict(Some(name)).unwrap();
        found.first().and_then(|one| one.longest_path)
    };
    let multi = b"Manifest-Version: 1.0\r\nMulti-Release: true\r\n";
    assert_eq!([8, 11, 17, 21].map(|java| path_of(multi, java, "Map")), [3, 9, 17, 17].map(Some));
    assert_eq!([8, 17].map(|java| path_of(multi, java, "New")), [None, Some(4)]);
    assert_eq!(path_of(b"Manifest-Version: 1.0\r\n", 17, "Map"), Some(3));
}

#[test]
fn jars_in_the_jar_are_opened_and_a_broken_one_is_named() {
    let inner = mapper("a/Map", &straight(5));
    let other = mapper("b/Map", &straight(7));
    let inner = jar(&[("a/Map.class", &inner), ("b/Map.class", &other)]);
    let outer = mapper("a/Map", &straight(3));
    let deep = jar(&[("lib/inner.jar", inner.as_slice())]);
    let files: [(&str, &[u8]); 4] = [
        ("lib/inner.jar", &inner),
        ("lib/broken.jar", b"no jar"),
        ("lib/deep.jar", &deep),
        ("a/Map.class", &outer),
    ];
    let program = Program::new(read_bytes(&jar(&files), &LIMITS).unwrap(), Vec::new());
    assert_eq!(program.skipped.len(), 1, "{:?}", program.skipped);
    assert!(program.skipped[0].starts_with("lib/broken.jar: "), "{:?}", program.skipped);
    let found = program.predict(None).unwrap();
    let paths: Vec<_> = found.iter().map(|one| (one.class.as_str(), one.longest_path)).collect();
    assert_eq!(paths, [("a.Map", Some(3)), ("b.Map", Some(7))], "the outer one comes first");
}

#[test]
fn a_bomb_in_a_jar_in_the_jar_is_refused() {
    let bomb = jar(&[("a.class", &vec![0; 9_000]), ("b.class", &vec![0; 9_000])]);
    let files: [(&str, &[u8]); 2] = [("1.jar", &bomb), ("2.jar", &bomb)];
    assert!(matches!(read_bytes(&jar(&files), &LIMITS), Err(Fault::TooLarge(20_000))));
}
