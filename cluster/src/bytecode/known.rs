//! What is known of calls into Java and Hadoop, which are the same for every program.

/// What a call into Java or Hadoop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// A few instructions.
    Short,
    /// Ordinary work: with the size of what it is given, far from a wait.
    Plain,
    /// Waits, and does little else: for a time, or for the network.
    Waits,
    /// May wait: for a disk, a lock, a thread, a process, a database.
    MayWait,
    /// Runs a method that only the running program knows.
    Reflects,
    /// Anything: hashing, sorting, patterns, code that it is given.
    Unknown,
}

/// Classes of which every method is short.
const SHORT: [&str; 28] = [
    "java/lang/Boolean",
    "java/lang/Byte",
    "java/lang/Character",
    "java/lang/Double",
    "java/lang/Enum",
    "java/lang/Exception",
    "java/lang/Float",
    "java/lang/IllegalArgumentException",
    "java/lang/IllegalStateException",
    "java/lang/Integer",
    "java/lang/Long",
    "java/lang/Math",
    "java/lang/Number",
    "java/lang/Object",
    "java/lang/RuntimeException",
    "java/lang/Short",
    "java/lang/Throwable",
    "org/apache/hadoop/io/BooleanWritable",
    "org/apache/hadoop/io/ByteWritable",
    "org/apache/hadoop/io/DoubleWritable",
    "org/apache/hadoop/io/FloatWritable",
    "org/apache/hadoop/io/IntWritable",
    "org/apache/hadoop/io/LongWritable",
    "org/apache/hadoop/io/NullWritable",
    "org/apache/hadoop/io/VIntWritable",
    "org/apache/hadoop/io/VLongWritable",
    "org/apache/hadoop/mapred/MapReduceBase",
    "org/apache/hadoop/mapreduce/Counter",
];

/// Beginnings of the names of classes that do ordinary work.
const PLAIN: [&str; 13] = [
    "java/io/",
    "java/lang/",
    "java/net/",
    "java/util/ArrayList",
    "java/util/HashMap",
    "java/util/Iterator",
    "java/util/List",
    "java/util/Map",
    "java/util/StringTokenizer",
    "org/apache/hadoop/conf/",
    "org/apache/hadoop/io/",
    "org/apache/hadoop/mapred/",
    "org/apache/hadoop/mapreduce/",
];

/// Class and method; an empty method is any of the class.
const WAITS: [(&str, &str); 13] = [
    ("java/lang/Thread", "sleep"),
    ("java/util/concurrent/TimeUnit", "sleep"),
    ("java/util/concurrent/locks/LockSupport", "parkNanos"),
    ("java/util/concurrent/locks/LockSupport", "parkUntil"),
    ("java/net/Socket", ""),
    ("java/net/ServerSocket", ""),
    ("java/net/DatagramSocket", ""),
    ("java/net/InetAddress", "getByName"),
    ("java/net/InetAddress", "getAllByName"),
    ("java/net/URL", "openStream"),
    ("java/net/URLConnection", ""),
    ("java/net/HttpURLConnection", ""),
    ("java/net/http/HttpClient", "send"),
];

const MAY_WAIT: [(&str, &str); 41] = [
    ("java/io/BufferedInputStream", ""),
    ("java/io/BufferedReader", ""),
    ("java/io/BufferedWriter", ""),
    ("java/io/DataInputStream", ""),
    ("java/io/FileDescriptor", "sync"),
    ("java/io/FileInputStream", ""),
    ("java/io/FileOutputStream", ""),
    ("java/io/FileReader", ""),
    ("java/io/FileWriter", ""),
    ("java/io/InputStream", ""),
    ("java/io/OutputStream", ""),
    ("java/io/Reader", ""),
    ("java/io/Writer", ""),
    ("java/io/RandomAccessFile", ""),
    ("java/lang/Object", "wait"),
    ("java/lang/Process", ""),
    ("java/lang/ProcessBuilder", ""),
    ("java/lang/Runtime", "exec"),
    ("java/lang/Thread", "join"),
    ("java/nio/MappedByteBuffer", "force"),
    ("java/nio/channels/AsynchronousFileChannel", ""),
    ("java/nio/channels/FileChannel", ""),
    ("java/nio/channels/Selector", ""),
    ("java/nio/channels/SocketChannel", ""),
    ("java/nio/file/Files", ""),
    ("java/sql/Connection", ""),
    ("java/sql/DriverManager", ""),
    ("java/sql/PreparedStatement", ""),
    ("java/sql/ResultSet", "next"),
    ("java/sql/Statement", ""),
    ("java/util/concurrent/BlockingQueue", ""),
    ("java/util/concurrent/CountDownLatch", "await"),
    ("java/util/concurrent/CyclicBarrier", "await"),
    ("java/util/concurrent/Exchanger", ""),
    ("java/util/concurrent/Future", "get"),
    ("java/util/concurrent/Semaphore", ""),
    ("java/util/concurrent/locks/Condition", ""),
    ("java/util/concurrent/locks/LockSupport", "park"),
    ("org/apache/hadoop/fs/FSDataInputStream", ""),
    ("org/apache/hadoop/fs/FSDataOutputStream", ""),
    ("org/apache/hadoop/fs/FileSystem", ""),
];

const REFLECTS: [(&str, &str); 5] = [
    ("java/lang/Class", "newInstance"),
    ("java/lang/invoke/MethodHandle", ""),
    ("java/lang/reflect/Constructor", "newInstance"),
    ("java/lang/reflect/Method", "invoke"),
    ("org/apache/hadoop/util/ReflectionUtils", "newInstance"),
];

/// What a call to a method of Java or Hadoop is, by its class as the call names it.
pub(crate) fn known(class: &str, method: &str) -> Known {
    let is_in = |table: &[(&str, &str)]| {
        table.iter().any(|(of, name)| *of == class && (name.is_empty() || *name == method))
    };
    // Of the base classes and of what they are given: `write`, `map` and `reduce` pass records on.
    let is_of_task = class.starts_with("org/apache/hadoop/mapreduce/")
        && (class.ends_with("Mapper") || class.ends_with("Reducer") || class.ends_with("Context"));
    let is_short = ["<init>", "setup", "cleanup", "getConfiguration", "getCounter", "progress"];
    if is_in(&WAITS) {
        Known::Waits
    } else if is_in(&MAY_WAIT) {
        Known::MayWait
    } else if is_in(&REFLECTS) {
        Known::Reflects
    } else if SHORT.contains(&class) || is_of_task && is_short.contains(&method) {
        Known::Short
    } else if method == "forEach" || class.starts_with("java/lang/invoke/") {
        Known::Unknown
    } else if PLAIN.iter().any(|beginning| class.starts_with(beginning)) {
        Known::Plain
    } else {
        Known::Unknown
    }
}

/// What Java and Hadoop bring: the same for every program. Programs of Hadoop's, and of projects that are named as if
/// they were part of it, are none of that.
pub(crate) fn is_runtime(class: &str) -> bool {
    if let Some(of_hadoop) = class.strip_prefix("org/apache/hadoop/") {
        let programs = ["examples/", "hbase/", "hive/", "streaming/", "tools/"];
        return !programs.iter().any(|program| of_hadoop.starts_with(program));
    }
    ["java/", "javax/", "jdk/", "sun/", "scala/runtime/"]
        .iter()
        .any(|prefix| class.starts_with(prefix))
}

/// Of one of the two APIs of MapReduce.
pub(crate) fn is_hadoops(class: &str) -> bool {
    class.starts_with("org/apache/hadoop/mapreduce/")
        || class.starts_with("org/apache/hadoop/mapred/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_in_hadoops_packages_are_no_part_of_it() {
        for (class, expected) in [
            ("org/apache/hadoop/mapreduce/Mapper", true),
            ("org/apache/hadoop/io/Text", true),
            ("java/lang/String", true),
            ("org/apache/hadoop/examples/WordCount", false),
            ("org/apache/hadoop/hive/ql/exec/mr/ExecMapper", false),
            ("org/apache/hadoop/tools/mapred/CopyMapper", false),
            ("org/apache/tez/mapreduce/examples/MRRSleepJob", false),
        ] {
            assert_eq!(is_runtime(class), expected, "{class}");
        }
    }
}
