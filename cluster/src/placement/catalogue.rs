//! The policies by name, with their sources and the one table of what each reads.
//!
//! | policy | priorities | tiers | replicas | network | groups | rates |
//! |---|---|---|---|---|---|---|
//! | `fifo` | x | | x | | | |
//! | `data-local` | x | | x | | | |
//! | `lrs` | x | x | x | | | |
//! | `layering` | x | x | x | | | |
//! | `wco` | x | | x | | | x |
//! | `delay`, `delay-simple`, `delay-offers` | x | | x | | x | |
//! | `lsap` | | | x | needed | | |
//! | `lsap-uniform` | | | x | | | |
//! | `lsap-fair` | | | x | needed | needed | |
//! | `dla` | x | | x | needed | | |
//!
//! `dla` also needs the capacity of the nodes, and uses demands and predicted ends of tasks.
//! What is marked is used where the file has it; what [`Entry::needs`] names has to be there.
//!
//! A policy of one's own is an [`Entry`] like these: [`crate::placement::plan::plan`] and
//! [`crate::placement::explain::explain`] take it, and a suite takes it by its name
//! ([`crate::simulation::suite::Suite::with_own`]). `cluster/examples/own_policy.rs` has one.

use std::fmt;

use crate::placement::cluster::Cluster;
use crate::placement::delay::{Delay, Patience};
use crate::placement::dispatcher::Dispatcher;
use crate::placement::dla::Dla;
use crate::placement::fault::Fault;
use crate::placement::fifo::Fifo;
use crate::placement::layering::Layering;
use crate::placement::local::DataLocal;
use crate::placement::lsap::Lsap;
use crate::placement::turn::Policy;
use crate::placement::wco::Wco;

/// A policy that can be asked for by name, shipped or one's own.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// What the input has to have.
    pub needs: &'static [Needs],
    /// It solves for all nodes together, and so wants to be asked about all of them at once.
    pub together: bool,
    /// A fresh instance for a cluster that has what it needs.
    pub make: fn(&Cluster) -> Box<dyn Policy>,
}

/// A name is of one policy.
impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.name == other.name
    }
}

/// Something that an input may leave out and a policy cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Bandwidths between the nodes.
    Network,
    /// Groups of jobs with weights.
    Groups,
    /// What each node has of CPUs, memory and disk.
    Capacity,
}

impl Needs {
    fn field(self) -> &'static str {
        match self {
            Needs::Network => "network",
            Needs::Groups => "groups",
            Needs::Capacity => "nodes[].capacity",
        }
    }

    fn is_in(self, cluster: &Cluster) -> bool {
        match self {
            Needs::Network => cluster.knows_network(),
            Needs::Groups => cluster.has_groups(),
            Needs::Capacity => cluster.knows_capacity(),
        }
    }
}

/// All policies, the one that is used unless another is asked for first.
pub const POLICIES: &[Entry] = &[
    Entry {
        name: "lrs",
        about: "active slots of all nodes before passive ones, one reduce a heartbeat",
        source: "P. Lu, thesis 2015, ch. 4, Alg. 2",
        needs: &[],
        together: false,
        make: |_| Box::new(Dispatcher),
    },
    Entry {
        name: "layering",
        about: "slots in two tiers by priority; reduces keep their share of each node",
        source: "P. Lu, thesis 2015, ch. 3, Alg. 1",
        needs: &[],
        together: false,
        make: |_| Box::new(Layering),
    },
    Entry {
        name: "fifo",
        about: "the first job of the queue, its nearest task first",
        source: "Hadoop; P. Lu, thesis 2015, 2.1",
        needs: &[],
        together: false,
        make: |_| Box::new(Fifo),
    },
    Entry {
        name: "data-local",
        about: "slot by slot the first task of any job that has its input there",
        source: "Guo, Fox, Zhou, MapReduce'12, section 2 (dl-sched)",
        needs: &[],
        together: false,
        make: |_| Box::new(DataLocal),
    },
    Entry {
        name: "wco",
        about: "jobs that compute beside jobs that read and write, by their computing rates",
        source: "P. Lu, thesis 2015, ch. 2, Fig. 2.5",
        needs: &[],
        together: false,
        make: |_| Box::new(Wco::default()),
    },
    Entry {
        name: "delay",
        about: "fair between groups; a job waits 10 s for its node, 10 s more for its rack",
        source: "Zaharia et al., EuroSys 2010, Alg. 3",
        needs: &[],
        together: false,
        make: |_| Box::new(Delay::new(Patience::WAITS)),
    },
    Entry {
        name: "delay-simple",
        about: "fair between groups; a job lets as many slots pass as the analysis wants for 95 %",
        source: "Zaharia et al., EuroSys 2010, Alg. 2 and section 3.5",
        needs: &[],
        together: false,
        make: |cluster| Box::new(Delay::new(Patience::skips(cluster))),
    },
    Entry {
        name: "delay-offers",
        about: "delay, with waits counted in slots that pass: one for each node",
        source: "Zaharia et al., EuroSys 2010, Alg. 3; YARN's Capacity scheduler",
        needs: &[],
        together: false,
        make: |cluster| Box::new(Delay::new(Patience::offers(cluster))),
    },
    Entry {
        name: "lsap",
        about: "all tasks and slots at once, at the least seconds of moving input",
        source: "Guo, Fox, Zhou, MapReduce'12, section 3 (lsap-sched)",
        needs: &[Needs::Network],
        together: true,
        make: |_| Box::new(Lsap::Seconds),
    },
    Entry {
        name: "lsap-uniform",
        about: "all tasks and slots at once, as many as possible at their input",
        source: "Guo, Fox, Zhou, MapReduce'12, section 3 (lsap-uniform-sched)",
        needs: &[],
        together: true,
        make: |_| Box::new(Lsap::Uniform),
    },
    Entry {
        name: "lsap-fair",
        about: "lsap, weighed against the shares of the groups",
        source: "Guo, Fox, Zhou, MapReduce'12, section 4 (lsap-fair-sched)",
        needs: &[Needs::Network, Needs::Groups],
        together: true,
        make: |_| Box::new(Lsap::FAIR),
    },
    Entry {
        name: "dla",
        about: "tasks matched with idle nodes that hold their input; waits if that is sooner",
        source: "Ru et al., DLAforBT",
        needs: &[Needs::Network, Needs::Capacity],
        together: true,
        make: |_| Box::new(Dla),
    },
];

impl Entry {
    /// The shipped policy of this name.
    ///
    /// # Errors
    /// Where there is none.
    pub fn find(name: &str) -> Result<&'static Entry, UnknownPolicy> {
        Entry::among(&[], name)
    }

    /// The policy of this name, of one's own or shipped.
    ///
    /// # Errors
    /// Where there is none.
    pub fn among<'a>(own: &'a [Entry], name: &str) -> Result<&'a Entry, UnknownPolicy> {
        let found = own.iter().chain(POLICIES).find(|entry| entry.name == name);
        found.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }

    /// A fresh instance; or what the input has to say first.
    pub fn policy(&self, cluster: &Cluster) -> Result<Box<dyn Policy>, Fault> {
        match self.needs.iter().find(|needs| !needs.is_in(cluster)) {
            None => Ok((self.make)(cluster)),
            Some(missing) => Err(Fault {
                at: missing.field().to_owned(),
                what: format!("missing; the policy {} needs it", self.name),
            }),
        }
    }
}

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = POLICIES.iter().map(|entry| entry.name).collect();
        write!(f, "no policy {:?}; there are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownPolicy {}
