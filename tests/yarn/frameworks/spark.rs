//! Spark, as `pip install pyspark` brings it: its jars, its Python, and `spark-submit`.

use std::fs;
use std::path::PathBuf;

use super::{HeldContainers, check, kill_first_master};
use crate::cluster::Cluster;
use crate::conf::Options;
use crate::hadoop::framework;
use crate::jobs::{Job, Words, show, text_of};
use crate::shaped::TWO;
use crate::site::Site;

/// A task for each executor, held until the test lets it go; then words are counted.
const PROGRAM: &str = r#"
import os
import sys
import time
from pyspark import SparkContext

words, counts, held, executors = sys.argv[1:]

def hold(_):
    path = os.path.join(held, os.environ["CONTAINER_ID"])
    open(path + ".held", "w").close()
    while not os.path.exists(path):
        time.sleep(0.1)

context = SparkContext()
context.parallelize(range(int(executors)), int(executors)).foreach(hold)
one = lambda line: [(word, 1) for word in line.split()]
counted = context.textFile(words, 1).flatMap(one).reduceByKey(lambda a, b: a + b, 1)
counted.map(lambda pair: f"{pair[0]}\t{pair[1]}").saveAsTextFile(counts)
"#;

/// A heap below it is refused by Spark; with what Spark adds for all else it is two containers.
const MEMORY: &str = "500m";

struct Spark {
    held: HeldContainers,
    words: Words,
    counts: PathBuf,
}

impl Spark {
    /// Four executors, each given back by Spark as soon as it has nothing to do.
    fn submit(cluster: &mut Cluster, mode: &str) -> (Job, Spark) {
        let held = HeldContainers::new(cluster);
        let home = framework("spark/python/pyspark");
        let words = Words::write(&cluster.fresh("words"), 1, 1_000);
        let counts = cluster.fresh("counts");
        // Without that ending Spark takes it for a jar.
        let program = cluster.fresh("program").with_extension("py");
        fs::write(&program, PROGRAM).expect("the program");
        let mut line = vec![
            "env".to_owned(),
            format!("HADOOP_CONF_DIR={}", cluster.conf(0).display()),
            format!("SPARK_HOME={}", home.display()),
            "SPARK_LOCAL_IP=127.0.0.1".to_owned(),
            format!("SPARK_SUBMIT_OPTS=-Djava.io.tmpdir={}", cluster.dir().join("java").display()),
            show(&home.join("bin/spark-submit")).to_owned(),
        ];
        line.extend(["--master", "yarn", "--deploy-mode", mode].map(str::to_owned));
        for setting in [
            format!("spark.yarn.jars=local:{}/jars/*", home.display()),
            format!("spark.yarn.stagingDir=file://{}", cluster.dir().join("staging").display()),
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP=127.0.0.1".to_owned(),
            "spark.yarn.submit.waitAppCompletion=true".to_owned(),
            "spark.ui.port=0".to_owned(),
            format!("spark.driver.memory={MEMORY}"),
            format!("spark.executor.memory={MEMORY}"),
            format!("spark.yarn.am.memory={MEMORY}"),
            "spark.dynamicAllocation.enabled=true".to_owned(),
            "spark.dynamicAllocation.shuffleTracking.enabled=true".to_owned(),
            "spark.dynamicAllocation.initialExecutors=4".to_owned(),
            "spark.dynamicAllocation.maxExecutors=4".to_owned(),
            "spark.dynamicAllocation.executorIdleTimeout=1s".to_owned(),
            // Tasks that wait keep Spark from giving back those that have registered first.
            "spark.scheduler.minRegisteredResourcesRatio=0".to_owned(),
        ] {
            line.extend(["--conf".to_owned(), setting]);
        }
        line.extend([&program, words.dir(), &counts, &held.dir].map(|path| show(path).to_owned()));
        line.push("4".to_owned());
        let job = Job::of(cluster.program(&line), format!("spark-submit, {mode}"));
        (job, Spark { held, words, counts })
    }

    fn is_right(&self) {
        self.words.check_counts(&text_of(&self.counts));
    }
}

fn executors_are_tasks_in_tiers(mode: &str) {
    let options = Options { containers: 10, ..Options::default() };
    let site = &mut Site::start("spark", options, TWO, "");
    let (job, spark) = Spark::submit(&mut site.cluster, mode);
    let application = job.application(&site.cluster);
    check(site, &application, &[("executor", 4)]);
    spark.held.release(site, 4);
    job.succeeded(&site.cluster);
    spark.is_right();
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and Spark"]
fn executors_of_a_driver_in_the_cluster() {
    executors_are_tasks_in_tiers("cluster");
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and Spark"]
fn executors_of_a_driver_outside() {
    executors_are_tasks_in_tiers("client");
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and Spark"]
fn a_second_attempt_of_a_driver_is_a_master_too() {
    let options = Options { containers: 10, ..Options::default() };
    let site = &mut Site::start("spark-again", options, TWO, "");
    let (job, spark) = Spark::submit(&mut site.cluster, "cluster");
    let application = job.application(&site.cluster);
    check(site, &application, &[("executor", 4)]);
    kill_first_master(site, &application, 0);
    check(site, &application, &[("executor", 4)]);
    spark.held.release_all(site);
    job.succeeded(&site.cluster);
    spark.is_right();
    site.nothing_left();
}
