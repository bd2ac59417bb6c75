//! A root with a weight that cannot be written: reported, tried again, and no more reported once it
//! is there.

use lrs::command::Command as Order;

use crate::bench::{Container, Loop, sweep};

#[test]
#[ignore = "needs root and cgroups"]
fn a_root_without_its_weight_is_a_warning_until_it_is_there() {
    let daemon = Loop::start("busy", "slots.active = 1");
    let mut config = daemon.config.clone();
    // The root is removed, and a new ratio wants its weight anew.
    sweep(&config.tree_settings().root.unwrap());
    config.tiers.ratio += 1;
    std::fs::write(daemon.config_file(), config.to_toml()).unwrap();
    daemon.ask(|caller, reply| Order::Reload { caller, reply }).unwrap();
    let warning = "the weight of the LRS root was not written, so tasks compete with other groups \
                   as before; it is tried again: cannot read ";
    daemon.until_warned(warning, true);
    // The next task makes the root anew.
    let mut container = Container::start("echo ready; sleep 600 & wait");
    let id = daemon.discover(&container.found()).unwrap();
    daemon.until_warned(warning, false);
    container.kill();
    daemon.until_ended(id);
}
