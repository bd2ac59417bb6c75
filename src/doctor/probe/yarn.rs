//! What is found of Hadoop on this node, for the verdicts of [`crate::doctor::yarn`]. Nothing is judged here.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lrs_api::client::{self, Endpoint};
use lrs_hadoop_conf::{Site, SiteError, Trust};
use nix::unistd::{Gid, User};

use super::reading::Reading;
use super::socket::Socket;
use crate::config::{Auto, Config};
use crate::systemd::manager::Manager;
use crate::{clock, proto, wire};

/// Runtime directory of lrs-yarn.service; it belongs to the user that the service runs as.
const RUNTIME_DIR: &str = "/run/lrs-yarn";

/// How long a ResourceManager may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// How long lrsd and systemd may take for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What the running lrsd knows from lrs-yarn.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::doctor) struct Reported {
    pub(in crate::doctor) status: proto::YarnStatus,
    /// Age of the last report; `None`: there was none since lrsd started.
    pub(in crate::doctor) age: Option<Duration>,
}

/// The unit that a NodeManager runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct ManagerUnit {
    pub(in crate::doctor) id: String,
    pub(in crate::doctor) kill_mode: String,
}

/// What was found of Hadoop on this node.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::doctor) struct Yarn {
    /// yarn-site.xml and core-site.xml.
    pub(in crate::doctor) site: Reading<Site>,
    /// Each local directory, and whether the NodeManager's private part of it can be read.
    pub(in crate::doctor) local_dirs: Reading<Vec<(PathBuf, Reading<()>)>>,
    /// Each ResourceManager, and whether it accepts a connection.
    pub(in crate::doctor) resource_managers: Reading<Vec<(String, Reading<()>)>>,
    /// The user of lrs-yarn.service and what of Hadoop's files it may not read; `None`: there is no
    /// such user, or it is not known.
    pub(in crate::doctor) unread: Option<(String, Vec<PathBuf>)>,
    /// `yarn.nodemanager.recovery.dir`, and whether the NodeManager's user may make it or write there;
    /// `None`: there is no such user but a directory, or only the NodeManager knows the path.
    pub(in crate::doctor) recovery_dir: Option<(PathBuf, Reading<()>)>,
    /// The services that NodeManagers run in now.
    pub(in crate::doctor) units: Reading<Vec<ManagerUnit>>,
    /// `None`: no lrsd answers.
    pub(in crate::doctor) reported: Option<Reading<Reported>>,
}

impl Yarn {
    /// `None` without `yarn.enabled`.
    pub(in crate::doctor) fn read(config: &Config, socket: &Socket, systemd: bool) -> Option<Yarn> {
        if !config.yarn.enabled {
            return None;
        }
        let trust = Trust::of(&config.yarn.user);
        let site = Site::read(&config.yarn.conf_dir, &trust).map_err(|error| error.to_string());
        let from_site = |found: Result<Vec<String>, SiteError>| found.map_err(|e| e.to_string());
        let local_dirs = match (&config.yarn.local_dirs, &site) {
            (Auto::Fixed(dirs), _) => Ok(dirs.clone()),
            (Auto::Auto, Ok(site)) => site.local_dirs().map_err(|error| error.to_string()),
            (Auto::Auto, Err(reason)) => Err(reason.clone()),
        };
        let resource_managers = match (&config.yarn.resource_managers, &site) {
            (Auto::Fixed(urls), _) => Ok(urls.clone()),
            (Auto::Auto, Ok(site)) => {
                let urls = site.resource_managers();
                from_site(urls.map(|all| all.into_iter().map(|one| one.url).collect()))
            }
            (Auto::Auto, Err(reason)) => Err(reason.clone()),
        };
        let answers = matches!(socket, Socket::Served { answers: true, .. });
        Some(Yarn {
            unread: unread(config),
            recovery_dir: site.as_ref().ok().and_then(|site| recovery_dir(site, &config.yarn.user)),
            units: if systemd { units() } else { Ok(Vec::new()) },
            reported: config.grpc.listen.first().filter(|_| answers).map(|path| reported(path)),
            site,
            local_dirs: local_dirs.map(|dirs| {
                let readable = |dir: PathBuf| {
                    let found = private_part(&dir);
                    (dir, found)
                };
                dirs.into_iter().map(readable).collect()
            }),
            resource_managers: resource_managers.map(|urls| {
                let tried = |url: String| {
                    let found = accepts(&url);
                    (url, found)
                };
                urls.into_iter().map(tried).collect()
            }),
        })
    }
}

/// What lrsd says of lrs-yarn's last report.
fn reported(socket: &Path) -> Reading<Reported> {
    let endpoint = Endpoint::unix(socket)?;
    let runtime = crate::runtime::on_this_thread();
    let asked = async {
        let name = concat!("lrsctl/", env!("CARGO_PKG_VERSION"));
        let mut lrsd = client::connect(&endpoint, name).await.map_err(|e| e.to_string())?;
        let answer = lrsd.get_yarn(proto::GetYarnRequest {}).await;
        answer.map(tonic::Response::into_inner).map_err(|status| status.message().to_owned())
    };
    let answer = runtime
        .map_err(|error| format!("cannot prepare the question: {error}"))?
        .block_on(async { tokio::time::timeout(ANSWER_WITHIN, asked).await });
    let status = answer.map_err(|_| format!("no answer within {ANSWER_WITHIN:?}"))??;
    let age = status.reported_at.as_ref().map(|at| {
        let now = clock::now().wall.unix_micros();
        // A clock that was set back makes a report of just now.
        let micros = now.saturating_sub(wire::wall_time(at).unix_micros()).max(0);
        Duration::from_micros(micros.unsigned_abs())
    });
    Ok(Reported { status, age })
}

/// Of NodeManagers that run in a service of systemd's.
fn units() -> Reading<Vec<ManagerUnit>> {
    let all = crate::discover::yarn::named_node_managers();
    let systemd = Manager::within(ANSWER_WITHIN);
    let mut found = Vec::new();
    for pid in all.map_err(|error| format!("cannot list /proc: {error}"))? {
        let Some(unit) = systemd.unit_of(pid).map_err(|error| error.to_string())? else { continue };
        let unit = ManagerUnit { id: unit.id, kill_mode: unit.kill_mode };
        if unit.id.ends_with(".service") && !found.contains(&unit) {
            found.push(unit);
        }
    }
    Ok(found)
}

/// A user with its groups, and what the modes of files let it do.
struct Account {
    user: User,
    groups: Vec<Gid>,
}

impl Account {
    fn of(user: User) -> Option<Account> {
        let name = std::ffi::CString::new(user.name.as_str()).ok()?;
        let groups = nix::unistd::getgrouplist(&name, user.gid).ok()?;
        Some(Account { user, groups })
    }

    /// `wanted`: bits as for others.
    fn may(&self, path: &Path, wanted: u32) -> bool {
        // What this process cannot see is none of what it can tell.
        let Ok(found) = std::fs::metadata(path) else { return true };
        let shift = match () {
            () if found.uid() == self.user.uid.as_raw() => 6,
            () if self.groups.iter().any(|group| group.as_raw() == found.gid()) => 3,
            () => 0,
        };
        self.user.uid.is_root() || found.mode() >> shift & wanted == wanted
    }
}

fn recovery_dir(site: &Site, user: &str) -> Option<(PathBuf, Reading<()>)> {
    let dir = site.recovery_dir().ok()?;
    let there = dir.ancestors().find(|above| above.exists())?;
    let account = User::from_name(user).ok()?.and_then(Account::of);
    let Some(account) = account else {
        let unmade = format!(
            "it is not there, and no known account could make it: there is no user {user} \
             (yarn.user, the NodeManager's)"
        );
        return (there != dir).then(|| (dir.clone(), Err(unmade)));
    };
    let reason = match () {
        () if !there.is_dir() => Some(format!("{} is no directory", there.display())),
        () if account.may(there, 0o3) => None,
        () if there == dir => Some(format!("the user {user} may not write there")),
        () => {
            Some(format!("it is not there, and the user {user} may not write {}", there.display()))
        }
    };
    Some((dir, reason.map_or(Ok(()), Err)))
}

fn unread(config: &Config) -> Option<(String, Vec<PathBuf>)> {
    let user = match std::fs::metadata(RUNTIME_DIR) {
        Ok(found) => User::from_uid(found.uid().into()).ok()??,
        Err(_) => User::from_name("lrs-yarn").ok()??,
    };
    let account = Account::of(user)?;
    let may = |path: &Path, wanted: u32| account.may(path, wanted);
    let conf = &config.yarn.conf_dir;
    let mut files = vec![conf.join("yarn-site.xml"), conf.join("core-site.xml")];
    if let Auto::Fixed(path) = &config.yarn.ca_file {
        files.push(path.clone());
    }
    files.retain(|file| !(may(file, 0o4) && file.ancestors().skip(1).all(|dir| may(dir, 0o1))));
    Some((account.user.name, files))
}

fn private_part(dir: &Path) -> Reading<()> {
    let private = dir.join("nmPrivate");
    std::fs::read_dir(&private)
        .map(drop)
        .map_err(|error| format!("cannot read {}: {error}", private.display()))
}

fn accepts(url: &str) -> Reading<()> {
    let (scheme, authority) = url.split_once("://").unwrap_or(("http", url));
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let port = if scheme == "https" { 443 } else { 80 };
    let place = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    let addresses =
        place.to_socket_addrs().map_err(|error| format!("{url}: cannot be looked up: {error}"))?;
    let mut last = format!("{url}: the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(_) => return Ok(()),
            Err(error) => last = format!("{url}: {error}"),
        }
    }
    Err(last)
}
