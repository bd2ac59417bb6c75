//! How many containers the node may run: a number that stands, or LRS's.
//!
//! The NodeManager is configured once, with LRS's base: two containers a core and one for a
//! master. A static number is set between runs by the ResourceManager's node-resource call, after
//! which the scheduler sees what a NodeManager configured so would have reported: a NodeManager
//! does not count the containers it is given.

use std::time::Duration;

use crate::beside::Lrs;
use crate::cluster::Cluster;
use crate::conf::CONTAINER;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Static {
        name: &'static str,
        /// The application's master included.
        containers: u32,
    },
    /// As shipped, with expansion, and offering its slots.
    Lrs {
        /// What YARN has without it.
        containers: u32,
    },
}

/// Containers of a NodeManager that LRS is to expand: its base of two slots a core, and a master.
pub fn base(cpus: u32) -> u32 {
    2 * cpus + 1
}

impl Setting {
    pub const LRS: &str = "lrs";
    pub const STATICS: [&str; 3] = ["static 1", "static 1.5", "static 2"];

    pub fn all(cpus: u32) -> [Setting; 4] {
        let [one, middle, two] = Setting::STATICS;
        [
            Setting::Static { name: one, containers: cpus + 1 },
            Setting::Static { name: middle, containers: (3 * cpus).div_ceil(2) + 1 },
            Setting::Static { name: two, containers: base(cpus) },
            Setting::Lrs { containers: base(cpus) },
        ]
    }

    pub fn name(self) -> &'static str {
        match self {
            Setting::Static { name, .. } => name,
            Setting::Lrs { .. } => Setting::LRS,
        }
    }

    /// Makes it so. The daemon, if there is one, is to be given to [`leave`].
    pub fn enter(self, cluster: &Cluster) -> Option<Lrs> {
        match self {
            Setting::Static { containers, .. } => {
                set(cluster, containers);
                None
            }
            Setting::Lrs { containers } => {
                set(cluster, containers);
                Some(daemon(cluster))
            }
        }
    }

    /// Ends it; LRS has to take back what it offered.
    pub fn leave(self, cluster: &Cluster, daemon: Option<Lrs>) {
        let (Setting::Lrs { containers }, Some(mut daemon)) = (self, daemon) else { return };
        let status = daemon.json(&["yarn", "status"]);
        assert!(status["last_error"].is_null(), "{status}\n{}", daemon.log());
        daemon.nothing_left();
        let (code, _) = daemon.stop();
        assert_eq!(code, Some(0), "{}", daemon.log());
        assert_eq!(shown(cluster), Some((containers, containers)), "the offer was not taken back");
    }
}

fn daemon(cluster: &Cluster) -> Lrs {
    let settings = format!(
        "[yarn]\nenabled = true\nconf_dir = {:?}\noffer = true\nslot_memory = \"{CONTAINER}MiB\"\n",
        cluster.conf(0)
    );
    let daemon = Lrs::start("yarn", &settings);
    daemon.eventually("a node that lrsd has read", |daemon| {
        std::thread::sleep(Duration::from_millis(50));
        daemon.json(&["yarn", "status"])["advertised"].is_object().then_some(())
    });
    daemon
}

/// Sets the node's resources at the ResourceManager, and waits until it shows them.
fn set(cluster: &Cluster, containers: u32) {
    let node = cluster.node(0).expect("the node");
    let id = node["id"].as_str().expect("the node's id");
    let address =
        format!("{}/ws/v1/cluster/nodes/{id}/resource?user.name=yarn", cluster.manager_url());
    let memory = containers * CONTAINER;
    let body = format!(
        "<resourceOption><resource><memory>{memory}</memory><vCores>{containers}</vCores>\
         </resource><overCommitTimeout>-1</overCommitTimeout></resourceOption>"
    );
    ureq::post(&address)
        .header("Content-Type", "application/xml")
        .header("Accept", "application/json")
        .send(&body)
        .expect("the node-resource call");
    cluster.patiently("a node of another size", |cluster| {
        (shown(cluster) == Some((containers, containers))).then_some(())
    });
}

/// Containers by memory, and vcores.
fn shown(cluster: &Cluster) -> Option<(u32, u32)> {
    let resource = &cluster.node(0)?["totalResource"];
    let number = |key: &str| resource[key].as_u64().and_then(|number| u32::try_from(number).ok());
    Some((number("memory")? / CONTAINER, number("vCores")?))
}
