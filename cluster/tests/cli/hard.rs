//! `lrs-place classify`: programs that javac made (`cluster/tests/measured/Hard.java`) with work that is
//! not in the path of their map method. `cluster/tests/measured/run` measures what each does.

use serde_json::Value;

use crate::lrs_place;

const JAR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/measured/Hard.jar");

fn programs() -> Vec<Value> {
    let json: Value =
        serde_json::from_str(&lrs_place(&["classify", JAR, "--json"]).out).expect("JSON");
    json["programs"].as_array().expect("a list").clone()
}

#[track_caller]
fn assert_all(class: &Value, names: &[(&str, &str)]) {
    let programs = programs();
    for (name, says) in names {
        let name = format!("Hard${name}");
        let program = programs.iter().find(|program| program["class"] == name.as_str());
        let program = program.unwrap_or_else(|| panic!("{name} is not listed"));
        assert_eq!(&program["predicted"], class, "{program}");
        assert_eq!(program["assumed_computing_rate"].is_null(), class.is_null(), "{program}");
        let note = program["note"].as_str().unwrap_or_default();
        assert!(note.contains(says), "{program}");
    }
}

#[test]
fn nothing_is_predicted_where_the_path_is_a_lower_bound() {
    assert_all(
        &Value::Null,
        &[
            ("Recurse", "a loop has no known count"),
            ("LibSha", "java.security.MessageDigest.digest"),
            ("LibOnce", "java.math.BigInteger"),
            ("Concat", "a loop has no known count"),
            ("Stream", "java.util.stream.LongStream"),
            ("FuncField", "java.util.function.LongUnaryOperator.applyAsLong"),
            ("AnonComparator", "java.util.Arrays.sort"),
            ("Combine", "a loop has no known count"),
            ("OtherObject", "which method runs for Hard$Worker.work"),
            ("External", "Absent.work (in no jar)"),
            ("ExternalSleep", "Absent.sleep (in no jar)"),
            ("Native", "Hard$Native.work (native)"),
            ("Reflect", "java.lang.reflect.Method.invoke (reflection)"),
            ("Pass", "Mapper$Context.write"),
            ("Retry", "may wait in java.lang.Thread.sleep"),
            ("NeverLong", "may wait in java.lang.Thread.sleep"),
            ("HashThenSleep", "may wait in java.lang.Thread.sleep"),
            ("ZipThenSleep", "java.util.zip.Deflater"),
            ("SetupSleeps", "may wait in java.lang.Thread.sleep"),
            ("Join", "may wait in java.lang.Thread.join"),
            ("NestedRead", "may wait in java.io.InputStream.read"),
            ("LambdaLater", "may wait in java.lang.Thread.sleep"),
        ],
    );
}

#[test]
fn lambdas_handlers_overrides_and_counted_loops_are_followed() {
    let names = ["InLambda", "InCatch", "Overrides", "IfaceDefault", "LongWork", "CountedLoop"];
    assert_all(&"cpu".into(), &names.map(|name| (name, "")));
    assert_all(&"cpu".into(), &[("Runs", ""), ("ReduceTwice", "")]);
}

#[test]
fn loops_in_loops_compute_whatever_the_path_once_through_them() {
    assert_all(&"cpu".into(), &["CpuLoop", "Matrix", "InCleanup"].map(|name| (name, "")));
}

#[test]
fn what_waits_for_each_record_is_io() {
    let names = ["Sleep", "SleepLoop", "SleepCaught", "ShortWork", "SuperSleep", "Net", "Http"];
    assert_all(&"io".into(), &names.map(|name| (name, "")));
    assert_all(&"io".into(), &[("ReduceSleep", "")]);
}

#[test]
fn string_concatenation_is_a_known_invokedynamic() {
    let programs = programs();
    let once = programs.iter().find(|program| program["class"] == "Hard$ConcatOnce");
    assert!(!once.expect("listed")["note"].to_string().contains("invokedynamic"));
}
