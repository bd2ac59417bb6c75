//! What runs in a container, from the command that starts it.
//!
//! The main class decides, and only where java takes it from: after java's options. A user's
//! arguments, options and environment may hold any text and fake nothing. A user may still run a
//! class of that name; kinds are therefore not rights, with one exception: a master has active
//! weights without a slot, so besides its class the container's number is asked
//! ([`ContainerId::sequence`]), which the ResourceManager gives.

use super::ids::{AttemptId, ContainerId, Phase};
use super::shell;

/// What a container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One map task of MapReduce.
    Map(AttemptId),
    /// One reduce task of MapReduce.
    Reduce(AttemptId),
    /// What asks the ResourceManager for the other containers and must not starve.
    ApplicationMaster,
    /// A process that runs many tasks of its framework: Spark, Tez, Flink.
    Executor,
}

impl Kind {
    /// The word in `kind` of a task.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Map(_) => "map",
            Kind::Reduce(_) => "reduce",
            Kind::ApplicationMaster => "am",
            Kind::Executor => "executor",
        }
    }
}

/// What a launch script tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// `None`: a framework LRS has no word for.
    pub kind: Option<Kind>,
    /// `NM_HOST:NM_PORT`, as the ResourceManager calls the node. What the container's owner may
    /// have written too, so a hint.
    pub node_id: Option<String>,
}

/// Main classes of masters.
const MASTERS: &[&str] = &[
    "org.apache.hadoop.mapreduce.v2.app.MRAppMaster",
    "org.apache.hadoop.yarn.applications.distributedshell.ApplicationMaster",
    "org.apache.hadoop.yarn.service.ServiceMaster",
    "org.apache.spark.deploy.yarn.ApplicationMaster",
    "org.apache.spark.deploy.yarn.ExecutorLauncher",
    "org.apache.tez.dag.app.DAGAppMaster",
    "org.apache.flink.yarn.YarnApplicationMasterRunner",
    "org.apache.flink.yarn.entrypoint.YarnApplicationClusterEntryPoint",
    "org.apache.flink.yarn.entrypoint.YarnJobClusterEntrypoint",
    "org.apache.flink.yarn.entrypoint.YarnSessionClusterEntrypoint",
];

/// Main classes that run tasks of their framework, one after the other or many at once.
const EXECUTORS: &[&str] = &[
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend",
    "org.apache.tez.runtime.task.TezChild",
    "org.apache.flink.yarn.YarnTaskExecutorRunner",
    "org.apache.flink.yarn.YarnTaskManager",
    "org.apache.flink.yarn.YarnTaskManagerRunner",
];

/// `org.apache.hadoop.mapred.YarnChild HOST PORT ATTEMPT JVM` (MapReduceChildJVM).
const YARN_CHILD: &str = "org.apache.hadoop.mapred.YarnChild";

/// Set for masters by the ResourceManager (AMLauncher).
const MASTER_VARIABLE: &str = "APPLICATION_WEB_PROXY_BASE";

/// What `script`, the NodeManager's own copy of `launch_container.sh`, starts as `container`.
pub fn launch(script: &str, container: &ContainerId) -> Launch {
    let commands = shell::commands(script);
    let exported = |name: &str| {
        commands.iter().find_map(|words| match words.as_slice() {
            [export, assignment, ..] if export == "export" => {
                assignment.strip_prefix(name)?.strip_prefix('=')
            }
            _ => None,
        })
    };
    // The last one is the NodeManager's; text of the owner's stands before it.
    let command = commands.iter().rev().find_map(|words| match words.as_slice() {
        [exec, shell, flag, command, ..] if exec == "exec" && is_shell(shell) && flag == "-c" => {
            Some(command.as_str())
        }
        _ => None,
    });
    let claimed = command.and_then(in_command);
    let node_id = node_id(exported("NM_HOST"), exported("NM_PORT"));
    Launch { kind: ranked(claimed, exported(MASTER_VARIABLE).is_some(), container), node_id }
}

/// What the main process of `container` does by its own arguments and `variables` of its
/// environment, where its script cannot be read.
pub fn running(
    arguments: &[String],
    variables: impl Fn(&str) -> Option<String>,
    container: &ContainerId,
) -> Launch {
    let claimed = match arguments {
        [shell, flag, command, ..] if is_shell(shell) && flag == "-c" => in_command(command),
        _ => in_words(arguments),
    };
    let node_id = node_id(variables("NM_HOST").as_deref(), variables("NM_PORT").as_deref());
    Launch { kind: ranked(claimed, variables(MASTER_VARIABLE).is_some(), container), node_id }
}

fn node_id(host: Option<&str>, port: Option<&str>) -> Option<String> {
    let (host, port) = host.zip(port)?;
    let fits = is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0);
    fits.then(|| format!("{host}:{port}"))
}

/// Whether a process with these arguments is a java program of exactly this main class.
pub fn has_main_class(arguments: &[String], class: &str) -> bool {
    main_class(arguments).is_some_and(|(found, _)| found == class)
}

/// Who may be a master. The first container of an attempt is its master's; asynchronous
/// scheduling may waste some numbers before it is placed, so a number near the first will do
/// where the ResourceManager's variable and the class agree.
fn ranked(claimed: Option<Kind>, variable: bool, container: &ContainerId) -> Option<Kind> {
    const WASTED: u64 = 8;
    match (claimed, container.sequence) {
        (Some(Kind::ApplicationMaster), 1) => Some(Kind::ApplicationMaster),
        (Some(Kind::ApplicationMaster), 2..=WASTED) if variable => Some(Kind::ApplicationMaster),
        (Some(Kind::ApplicationMaster), _) => None,
        // A framework that is not in the table.
        (None, 1) if variable => Some(Kind::ApplicationMaster),
        (other, _) => other,
    }
}

fn in_command(command: &str) -> Option<Kind> {
    shell::commands(command).iter().find_map(|words| in_words(words))
}

fn in_words(words: &[String]) -> Option<Kind> {
    let (class, arguments) = main_class(words)?;
    if class == YARN_CHILD {
        let attempt: AttemptId = arguments.get(2)?.parse().ok()?;
        return Some(match attempt.phase {
            Phase::Map => Kind::Map(attempt),
            Phase::Reduce => Kind::Reduce(attempt),
        });
    }
    if MASTERS.contains(&class) {
        return Some(Kind::ApplicationMaster);
    }
    EXECUTORS.contains(&class).then_some(Kind::Executor)
}

/// Main class and arguments of a java command; what may stand before java is skipped.
fn main_class(words: &[String]) -> Option<(&str, &[String])> {
    let java = program(words)?;
    let (name, mut rest) = java.split_first()?;
    if name.rsplit('/').next() != Some("java") {
        return None;
    }
    while let Some((word, after)) = rest.split_first() {
        rest = match word.as_str() {
            // The class is in the archive's manifest, or named otherwise.
            "-jar" | "-m" | "--module" => return None,
            "-cp"
            | "-classpath"
            | "--class-path"
            | "-p"
            | "--module-path"
            | "--upgrade-module-path"
            | "--add-modules"
            | "--add-opens"
            | "--add-exports"
            | "--add-reads"
            | "--patch-module"
            | "--limit-modules"
            | "--enable-native-access" => after.get(1..)?,
            // A variable or a file of options; no main class has such a name.
            option if option.starts_with(['-', '@']) || option.is_empty() => after,
            variable if variable.starts_with('$') && !variable.contains('/') => after,
            class => return Some((class, after)),
        };
    }
    None
}

/// `words` from the program on: assignments, and wrappers with their options, come before it.
fn program(words: &[String]) -> Option<&[String]> {
    let mut rest = words;
    loop {
        let (word, after) = rest.split_first()?;
        rest = match word.as_str() {
            "exec" | "setsid" | "nohup" | "env" | "time" => after,
            "nice" | "ionice" | "numactl" | "taskset" => skip_options(after),
            word if is_assignment(word) => after,
            _ => return Some(rest),
        };
    }
}

/// Options, and the numbers and names that may follow them.
fn skip_options(words: &[String]) -> &[String] {
    let is_option = |word: &&String| {
        word.starts_with('-')
            || word.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'-'))
    };
    let skipped = words.iter().take_while(is_option).count();
    words.get(skipped..).unwrap_or_default()
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

fn is_shell(word: &str) -> bool {
    matches!(word, "/bin/bash" | "bash" | "/usr/bin/bash" | "/bin/sh" | "sh")
}

fn is_host(host: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (1..=253).contains(&host.len()) && host.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "attempt_1700000000000_0001_m_000003_0";

    fn container(sequence: u64) -> ContainerId {
        format!("container_1700000000000_0001_01_{sequence:06}").parse().unwrap()
    }

    /// A script as ContainerLaunch of 3.4 writes it, with these exports more.
    fn script(exports: &str, command: &str) -> String {
        format!(
            "#!/bin/bash\n\nset -o pipefail -e\nexport PRELAUNCH_OUT=\"/l/prelaunch.out\"\n\
             exec >\"${{PRELAUNCH_OUT}}\"\nexport PRELAUNCH_ERR=\"/l/prelaunch.err\"\n\
             exec 2>\"${{PRELAUNCH_ERR}}\"\necho \"Setting up env variables\"\n\
             export JAVA_HOME=${{JAVA_HOME:-\"/usr/lib/jvm/j\"}}\n\
             export NM_HOST=\"n7.example\"\nexport NM_PORT=\"45454\"\n{exports}\
             export JVM_PID=\"$$\"\necho \"Setting up job resources\"\n\
             ln -sf -- \"/d/job.jar\" \"job.jar\"\necho \"Launching container\"\n\
             exec /bin/bash -c \"{command}\"\n"
        )
    }

    fn kind(exports: &str, command: &str, sequence: u64) -> Option<Kind> {
        launch(&script(exports, command), &container(sequence)).kind
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn tasks_of_mapreduce_tell_their_attempt() {
        let child = |attempt: &str| {
            format!(
                "$JAVA_HOME/bin/java -Djava.net.preferIPv4Stack=true <ADD_OPENS> -Xmx512m \
                 --add-opens java.base/java.lang=ALL-UNNAMED -Dhadoop.root.logfile=syslog \
                 org.apache.hadoop.mapred.YarnChild 10.0.0.1 40001 {attempt} 3 1>/l/stdout 2>/l/stderr "
            )
            .replace("<ADD_OPENS> ", "")
        };
        assert_eq!(kind("", &child(MAP), 5), Some(Kind::Map(MAP.parse().unwrap())));
        let reduce = MAP.replace("_m_", "_r_");
        assert_eq!(kind("", &child(&reduce), 5), Some(Kind::Reduce(reduce.parse().unwrap())));
        assert_eq!(kind("", &child("attempt_x"), 5), None);
        let launch = launch(&script("", &child(MAP)), &container(5));
        assert_eq!(launch.node_id.as_deref(), Some("n7.example:45454"));
    }

    #[test]
    fn masters_and_executors_of_the_frameworks() {
        let java = |class: &str| {
            format!(
                "cd x && A=b {{{{JAVA_HOME}}}}/bin/java -server '-Da=b c' {class} --arg 1 1>o 2>e"
            )
        };
        for class in MASTERS {
            assert_eq!(kind("", &java(class), 1), Some(Kind::ApplicationMaster), "{class}");
            assert_eq!(kind("", &java(class), 9), None, "{class}");
        }
        for class in EXECUTORS {
            assert_eq!(kind("", &java(class), 2), Some(Kind::Executor), "{class}");
        }
        let spark = "LD_LIBRARY_PATH=\\\"/n:$LD_LIBRARY_PATH\\\" {{JAVA_HOME}}/bin/java -server -Xmx1024m \
                     '-Dspark.driver.port=1' -XX:OnOutOfMemoryError='kill %p' \
                     org.apache.spark.executor.YarnCoarseGrainedExecutorBackend --driver-url spark://x 1>o 2>e";
        assert_eq!(kind("", spark, 2), Some(Kind::Executor));
        assert_eq!(
            kind(
                "",
                "nice -n 5 numactl --interleave=0,1 java -cp a org.apache.tez.runtime.task.TezChild",
                2
            ),
            Some(Kind::Executor)
        );
    }

    #[test]
    fn a_master_is_known_by_the_resource_managers_variable_too() {
        let variable = "export APPLICATION_WEB_PROXY_BASE=\"/proxy/application_1_0001\"\n";
        let am = Some(Kind::ApplicationMaster);
        assert_eq!(kind(variable, "java com.example.Master", 1), am);
        assert_eq!(kind(variable, "python3 master.py", 1), am);
        assert_eq!(kind(variable, "python3 worker.py", 2), None, "anybody may set it");
        assert_eq!(kind(variable, "java org.apache.tez.dag.app.DAGAppMaster", 3), am);
        assert_eq!(kind(variable, "java org.apache.tez.dag.app.DAGAppMaster", 30), None);
    }

    #[test]
    fn arguments_options_and_variables_fake_nothing() {
        let am = "org.apache.hadoop.mapreduce.v2.app.MRAppMaster";
        for command in [
            format!("java -jar {am}"),
            format!("java -cp {am} com.example.Main"),
            format!("java -D{am} com.example.Main {am}"),
            format!("java com.example.Main java {am}"),
            format!("echo java {am}"),
            format!("java com.example.Main '; java {am}'"),
            format!("java com.example.Main \\\"\n java {am}\\\""),
            format!("/tmp/notjava {am}"),
            format!("java {am}x"),
            "java".to_owned(),
            "java -cp".to_owned(),
            String::new(),
        ] {
            assert_eq!(kind("", &command, 1), None, "{command}");
        }
        // In a variable of the owner's, before the NodeManager's own line.
        let exports = format!("export X=\"a\nexec /bin/bash -c \\\"java {am}\\\"\n\"\n");
        assert_eq!(kind(&exports, "java com.example.Main", 1), None);
        let broken = format!("export X=\"\"\nexec /bin/bash -c \"java {am}\"\n");
        assert_eq!(kind(&broken, "java com.example.Main", 1), None);
    }

    #[test]
    fn a_running_process_is_known_by_its_arguments() {
        let direct = words(&format!("/j/bin/java -Xmx1g {YARN_CHILD} h 1 {MAP} 2"));
        let map = Some(Kind::Map(MAP.parse().unwrap()));
        let none = |_: &str| None;
        assert_eq!(running(&direct, none, &container(2)).kind, map);
        let shell = ["/bin/bash", "-c", &format!("java {YARN_CHILD} h 1 {MAP} 2 1>o")];
        let set = |name: &str| Some(if name == "NM_HOST" { "n7" } else { "45" }.to_owned());
        let launch = running(&shell.map(str::to_owned), set, &container(2));
        assert_eq!((launch.kind, launch.node_id.as_deref()), (map, Some("n7:45")));
        assert_eq!(running(&[], none, &container(2)), Launch::default());
        assert_eq!(running(&[], set, &container(1)).kind, Some(Kind::ApplicationMaster));
        assert!(has_main_class(&direct, YARN_CHILD));
        assert!(!has_main_class(&words("java x org.apache.hadoop.mapred.YarnChild"), YARN_CHILD));
    }

    proptest::proptest! {
        #[test]
        fn any_script_has_an_answer(text in "(java |-cp |exec /bin/bash -c |\"|'|\n|org.apache.hadoop.mapred.YarnChild |\\PC){0,30}") {
            let found = launch(&text, &container(1));
            proptest::prop_assert!(found.node_id.is_none());
        }
    }
}
