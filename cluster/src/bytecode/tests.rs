//! Programs put together by hand, and jars that are broken on purpose.

// Tests, which measure how long it takes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use proptest::prelude::*;
use rawzip::{CompressionMethod, ZipArchiveWriter};

use crate::bytecode::jar::{Contents, Fault, Limits, read_bytes};
use crate::bytecode::{Kind, Predicts, Program};

mod followed;

const MAPPER: &str = "org/apache/hadoop/mapreduce/Mapper";
const REDUCER: &str = "org/apache/hadoop/mapreduce/Reducer";
const MAP: &str = "(Ljava/lang/Object;Lorg/apache/hadoop/mapreduce/Mapper$Context;)V";
const REDUCE: &str = "(Ljava/lang/Object;Lorg/apache/hadoop/mapreduce/Reducer$Context;)V";
const ABSTRACT: u16 = 0x0400;
const BRIDGE: u16 = 0x0040;
const NATIVE: u16 = 0x0100;

const NOP: u8 = 0x00;
const ICONST_0: u8 = 0x03;
const IFEQ: u8 = 0x99;
const GOTO: u8 = 0xa7;
const TABLESWITCH: u8 = 0xaa;
const RETURN: u8 = 0xb1;
const INVOKEVIRTUAL: u8 = 0xb6;

/// A class file, put together.
struct Assembler {
    pool: Vec<Vec<u8>>,
    flags: u16,
    name: u16,
    parent: u16,
    interfaces: Vec<u16>,
    methods: Vec<Vec<u8>>,
}

impl Assembler {
    fn class(name: &str, parent: &str) -> Assembler {
        let pool = Vec::new();
        let mut made =
            Assembler { pool, flags: 1, name: 0, parent: 0, interfaces: vec![], methods: vec![] };
        made.name = made.class_ref(name);
        made.parent = made.class_ref(parent);
        made
    }

    fn entry(&mut self, tag: u8, rest: &[&[u8]]) -> u16 {
        self.pool.push([&[tag], rest.concat().as_slice()].concat());
        self.pool.len() as u16
    }

    fn text(&mut self, text: &str) -> u16 {
        self.entry(1, &[&(text.len() as u16).to_be_bytes(), text.as_bytes()])
    }

    fn class_ref(&mut self, name: &str) -> u16 {
        let name = self.text(name);
        self.entry(7, &[&name.to_be_bytes()])
    }

    fn interface(mut self, name: &str) -> Assembler {
        let name = self.class_ref(name);
        self.interfaces.push(name);
        self
    }

    fn call(&mut self, class: &str, name: &str, descriptor: &str) -> Vec<u8> {
        let class = self.class_ref(class);
        let (name, descriptor) = (self.text(name), self.text(descriptor));
        let named = self.entry(12, &[&name.to_be_bytes(), &descriptor.to_be_bytes()]);
        let method = self.entry(10, &[&class.to_be_bytes(), &named.to_be_bytes()]);
        [&[INVOKEVIRTUAL], method.to_be_bytes().as_slice()].concat()
    }

    fn method(mut self, name: &str, descriptor: &str, flags: u16, code: &[u8]) -> Assembler {
        let (name, descriptor) = (self.text(name), self.text(descriptor));
        let mut method = Vec::new();
        let has_code = u16::from(flags & (ABSTRACT | NATIVE) == 0);
        for number in [flags | 1, name, descriptor, has_code] {
            method.extend(number.to_be_bytes());
        }
        if has_code == 1 {
            method.extend(self.text("Code").to_be_bytes());
            method.extend((code.len() as u32 + 12).to_be_bytes());
            method.extend([0, 9, 0, 9]);
            method.extend((code.len() as u32).to_be_bytes());
            method.extend(code);
            method.extend([0, 0, 0, 0]);
        }
        self.methods.push(method);
        self
    }

    fn bytes(self) -> Vec<u8> {
        let mut file = vec![0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 52];
        file.extend((self.pool.len() as u16 + 1).to_be_bytes());
        file.extend(self.pool.concat());
        let ends = [self.flags, self.name, self.parent, self.interfaces.len() as u16];
        let methods = [0, self.methods.len() as u16];
        for number in ends.into_iter().chain(self.interfaces).chain(methods) {
            file.extend(number.to_be_bytes());
        }
        file.extend(self.methods.concat());
        file.extend([0, 0]);
        file
    }
}

/// `length` instructions, the last of which returns.
fn straight(length: usize) -> Vec<u8> {
    let mut code = vec![NOP; length - 1];
    code.push(RETURN);
    code
}

/// A map class with `code` as its method.
fn mapper(name: &str, code: &[u8]) -> Vec<u8> {
    Assembler::class(name, MAPPER).method("map", MAP, 0, code).bytes()
}

fn program(classes: Vec<Vec<u8>>) -> Program {
    let named = |(place, bytes)| (format!("c{place}.class"), bytes);
    let classes = classes.into_iter().enumerate().map(named).collect();
    Program::new(Contents { classes, ..Contents::default() }, Vec::new())
}

/// The longest path of the only program.
fn path(classes: Vec<Vec<u8>>) -> Option<u64> {
    let found = program(classes).predict(None).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].longest_path
}

#[test]
fn the_thresholds_of_the_thesis_decide() {
    let cases = [(499, 999, Predicts::Io, 0.1), (500, 1_000, Predicts::Cpu, 0.6)];
    for (map, reduce, class, rate) in cases {
        let both =
            Assembler::class("a/Reduce", REDUCER).method("reduce", REDUCE, 0, &straight(reduce));
        let found =
            program(vec![mapper("a/Map", &straight(map)), both.bytes()]).predict(None).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].class.as_str(), found[0].kind), ("a.Map", Kind::Map));
        assert_eq!((found[1].class.as_str(), found[1].kind), ("a.Reduce", Kind::Reduce));
        assert_eq!(found[0].longest_path, Some(map as u64));
        assert_eq!(found[1].longest_path, Some(reduce as u64));
        for one in found {
            assert_eq!((one.predicted, one.assumed_computing_rate), (Some(class), Some(rate)));
        }
    }
}

#[test]
fn the_old_api_and_subclasses_are_found_and_abstract_classes_are_not() {
    let old = "(Lorg/apache/hadoop/mapred/OutputCollector;Lorg/apache/hadoop/mapred/Reporter;)V";
    let old = Assembler::class("a/Old", "java/lang/Object")
        .interface("org/apache/hadoop/mapred/Mapper")
        .method("map", old, 0, &straight(7));
    let mut base = Assembler::class("a/Base", MAPPER).method("map", MAP, 0, &straight(9));
    base.flags |= ABSTRACT;
    let under = Assembler::class("a/Under", "a/Base");
    let other = Assembler::class("a/Other", "java/lang/Object").method("map", MAP, 0, &straight(3));
    let program = program([old, base, under, other].map(Assembler::bytes).to_vec());
    let found = program.predict(None).unwrap();
    let found: Vec<_> = found.iter().map(|one| (one.class.as_str(), one.longest_path)).collect();
    assert_eq!(found, [("a.Old", Some(7)), ("a.Under", Some(9))]);
    assert_eq!(program.predict(Some("Base")).unwrap().len(), 1, "named, an abstract class counts");
    assert_eq!(program.predict(Some("a.Under")).unwrap().len(), 1);
    assert!(program.predict(Some("nder")).unwrap().is_empty(), "the end of a name is a whole word");
    assert!(program.has("Other") && program.predict(Some("Other")).unwrap().is_empty());
}

#[test]
fn inherited_methods_are_known_where_the_jar_or_hadoops_base_has_them() {
    let found = program(vec![Assembler::class("a/Same", MAPPER).bytes()]).predict(None).unwrap();
    assert_eq!((found[0].longest_path, found[0].predicted), (Some(0), None));
    assert!(found[0].note.as_ref().unwrap().contains("passes its input on"), "{found:?}");
    let library = "org/apache/hadoop/mapreduce/lib/map/InverseMapper";
    let found = program(vec![Assembler::class("a/Lib", library).bytes()]).predict(None).unwrap();
    assert_eq!((found[0].longest_path, found[0].predicted), (None, None));
    assert!(found[0].note.as_ref().unwrap().contains("InverseMapper"), "{found:?}");
}

#[test]
fn a_bridge_does_not_count_as_a_map_method() {
    let class = Assembler::class("a/Map", MAPPER).method("map", MAP, 0, &straight(5)).method(
        "map",
        &MAP.replace("Object", "String"),
        BRIDGE,
        &straight(50),
    );
    assert_eq!(path(vec![class.bytes()]), Some(5));
}

#[test]
fn branches_loops_and_code_behind_the_end_count_as_documented() {
    // 0 iconst_0; 1 ifeq 8; 4 nop; 5 goto 0; 8 return; what follows is not reached.
    let code = [ICONST_0, IFEQ, 0, 7, NOP, GOTO, 0xff, 0xfb, RETURN, NOP, NOP, RETURN];
    assert_eq!(path(vec![mapper("a/Map", &code)]), Some(5));
    // A switch over one key and a default: 12 bytes after three of padding, at 1.
    let mut switch = vec![ICONST_0, TABLESWITCH, 0, 0];
    for number in [20_i32, 0, 0, 19] {
        switch.extend(number.to_be_bytes());
    }
    switch.extend([NOP, RETURN]);
    assert_eq!(path(vec![mapper("a/Map", &switch)]), Some(4));
}

#[test]
fn calls_add_the_longest_path_of_what_the_jar_has() {
    let mut map = Assembler::class("a/Map", MAPPER);
    let mut code = map.call("a/Help", "help", "()V");
    code.extend(map.call("java/util/List", "size", "()V"));
    code.extend(map.call("not/There", "help", "()V"));
    code.push(RETURN);
    let map = map.method("map", MAP, 0, &code).bytes();
    let help =
        Assembler::class("a/Help", "java/lang/Object").method("help", "()V", 0, &straight(100));
    let runtime = Assembler::class("java/util/List", "java/lang/Object");
    let runtime = runtime.method("size", "()V", 0, &straight(100));
    assert_eq!(path(vec![map, help.bytes(), runtime.bytes()]), Some(104));
}

#[test]
fn a_method_without_a_body_counts_with_its_longest_implementation() {
    let mut map = Assembler::class("a/Map", MAPPER);
    let mut code = map.call("a/Any", "help", "()V");
    code.push(RETURN);
    let map = map.method("map", MAP, 0, &code).bytes();
    let any = Assembler::class("a/Any", "java/lang/Object").method("help", "()V", ABSTRACT, &[]);
    let short = Assembler::class("a/Short", "a/Any").method("help", "()V", 0, &straight(10));
    let long = Assembler::class("a/Long", "a/Short").method("help", "()V", 0, &straight(30));
    assert_eq!(path(vec![map, any.bytes(), short.bytes(), long.bytes()]), Some(32));
}

#[test]
fn recursion_counts_once() {
    let mut map = Assembler::class("a/Map", MAPPER);
    let mut code = map.call("a/Map", "map", MAP);
    code.extend(map.call("a/Map", "back", "()V"));
    code.push(RETURN);
    let mut back = map.call("a/Map", "map", MAP);
    back.extend([NOP, RETURN]);
    let map = map.method("map", MAP, 0, &code).method("back", "()V", 0, &back);
    assert_eq!(path(vec![map.bytes()]), Some(3));
}

/// Each of 100 methods calls the next one twice.
#[test]
fn a_path_of_two_to_the_hundred_ends_at_the_greatest_number() {
    let mut map = Assembler::class("a/Map", MAPPER);
    let mut code = map.call("a/Map", "m0", "()V");
    code.push(RETURN);
    map = map.method("map", MAP, 0, &code);
    for number in 0..100 {
        let call = map.call("a/Map", &format!("m{}", number + 1), "()V");
        let code = [call.as_slice(), &call, &[RETURN]].concat();
        map = map.method(&format!("m{number}"), "()V", 0, &code);
    }
    assert_eq!(path(vec![map.bytes()]), Some(u64::MAX));
}

#[test]
fn a_broken_method_is_named_and_says_nothing() {
    let broken = [
        vec![NOP],                       // runs past its end
        vec![GOTO, 0, 2],                // into the middle of an instruction
        vec![GOTO, 0x7f, 0xff],          // out of the method
        vec![0xfd, RETURN],              // no instruction
        vec![INVOKEVIRTUAL, 0xff, 0xff], // no entry of the pool
        vec![],
        // Two thousand million keys, and not one of them there.
        vec![TABLESWITCH, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff],
    ];
    for code in broken {
        let found = program(vec![mapper("a/Map", &code)]).predict(None).unwrap();
        assert_eq!(found[0].predicted, None, "{code:?}");
        assert!(found[0].note.as_ref().unwrap().contains("cannot be read"), "{found:?}");
    }
    let twice =
        program(vec![mapper("a/Map", &straight(1)), mapper("a/Map", &straight(2)), vec![1]]);
    assert_eq!(twice.skipped.len(), 2, "{:?}", twice.skipped);
    assert_eq!(twice.predict(None).unwrap()[0].longest_path, Some(1));
}

#[test]
fn classes_above_each_other_in_a_circle_end() {
    let one = Assembler::class("a/One", "a/Two");
    let two = Assembler::class("a/Two", "a/One").interface(MAPPER);
    let found = program(vec![one.bytes(), two.bytes()]).predict(None).unwrap();
    assert!(found.iter().all(|one| one.longest_path.is_none()), "{found:?}");
}

fn jar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut jar = Vec::new();
    let mut archive = ZipArchiveWriter::new(&mut jar);
    for (name, content) in files {
        let file = archive.new_file(name).compression_method(CompressionMethod::DEFLATE);
        let (mut entry, config) = file.start().unwrap();
        let mut writer = config.wrap(DeflateEncoder::new(&mut entry, Compression::default()));
        writer.write_all(content).unwrap();
        let (encoder, descriptor) = writer.finish().unwrap();
        encoder.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
    jar
}

const LIMITS: Limits = Limits { entries: 9, class_bytes: 10_000, total_bytes: 20_000, java: 17 };

#[test]
fn a_jar_gives_its_classes_and_nothing_else() {
    let class = mapper("a/Map", &straight(3));
    let files: [(&str, &[u8]); 3] =
        [("a/Map.class", &class), ("a.txt", b"a"), ("META-INF/Map.class", b"x")];
    let contents = read_bytes(&jar(&files), &LIMITS).unwrap();
    let named = vec![("a/Map.class".to_owned(), class)];
    assert_eq!((contents.classes, contents.skipped.len()), (named, 0));
}

#[test]
fn a_class_file_that_cannot_be_read_is_named_by_its_entry() {
    let files: [(&str, &[u8]); 2] =
        [("a/Map.class", &mapper("a/Map", &straight(3))), ("b/X.class", b"x")];
    let program = Program::new(read_bytes(&jar(&files), &LIMITS).unwrap(), Vec::new());
    assert!(program.skipped[0].starts_with("b/X.class: "), "{:?}", program.skipped);
}

#[test]
fn bombs_are_refused_before_they_unfold() {
    let bomb = vec![0; 100_000_000];
    let packed = jar(&[("a/Bomb.class", &bomb)]);
    assert!(packed.len() < 200_000);
    let began = Instant::now();
    let contents = read_bytes(&packed, &LIMITS).unwrap();
    assert!(contents.classes.is_empty() && contents.skipped[0].contains("more than 10000 bytes"));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());

    let part = vec![0; 9_000];
    let names: Vec<String> = (0..10).map(|number| format!("{number}.class")).collect();
    let parts: Vec<(&str, &[u8])> =
        names.iter().map(|name| (name.as_str(), part.as_slice())).collect();
    assert!(matches!(read_bytes(&jar(&parts[..3]), &LIMITS), Err(Fault::TooLarge(20_000))));
    let empty: Vec<(&str, &[u8])> =
        names.iter().map(|name| (name.as_str(), b"".as_slice())).collect();
    assert!(matches!(read_bytes(&jar(&empty), &LIMITS), Err(Fault::TooManyEntries(9))));
    for junk in [b"".as_slice(), b"PK", b"not a jar at all, but text"] {
        assert!(matches!(read_bytes(junk, &LIMITS), Err(Fault::NotAJar(_))));
    }
}

/// What a hostile jar may cost: it may be wrong, but it ends, and soon.
fn ends_soon(jar: &[u8]) {
    let began = Instant::now();
    if let Ok(contents) = read_bytes(jar, &LIMITS) {
        let _ = Program::new(contents, Vec::new()).predict(None);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

fn sample() -> Vec<Vec<u8>> {
    let mut map = Assembler::class("a/Map", MAPPER);
    let mut code = vec![ICONST_0, TABLESWITCH, 0, 0];
    for number in [20_i32, 0, 0, 19] {
        code.extend(number.to_be_bytes());
    }
    code.push(NOP);
    code.extend(map.call("a/Any", "help", "()V"));
    code.extend([ICONST_0, IFEQ, 0, 6, GOTO, 0xff, 0xfc, RETURN]);
    let map = map.method("map", MAP, 0, &code);
    let any = Assembler::class("a/Any", "java/lang/Object").method("help", "()V", ABSTRACT, &[]);
    let one = Assembler::class("a/One", "a/Any").method("help", "()V", 0, &straight(10));
    vec![map.bytes(), any.bytes(), one.bytes()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_jar_with_wrong_bytes_ends(wrong in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let classes = sample();
        let names = ["a/Map.class", "a/Any.class", "a/One.class"];
        let files: Vec<_> = names.into_iter().zip(classes.iter().map(Vec::as_slice)).collect();
        let mut jar = jar(&files);
        for (at, byte) in wrong {
            let at = at.index(jar.len());
            jar[at] = byte;
        }
        ends_soon(&jar);
    }

    /// Past the checksums of the zip file.
    #[test]
    fn classes_with_wrong_bytes_end(
        wrong in prop::collection::vec((0..3_usize, any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut classes = sample();
        for (class, at, byte) in wrong {
            let at = at.index(classes[class].len());
            classes[class][at] = byte;
        }
        let end = cut.index(classes[2].len()) + 1;
        classes[2].truncate(end);
        let began = Instant::now();
        let _ = program(classes).predict(None);
        prop_assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn any_code_ends(code in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = program(vec![mapper("a/Map", &code)]).predict(None);
    }
}
