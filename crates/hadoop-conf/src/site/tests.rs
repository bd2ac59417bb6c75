use super::*;

fn site(properties: &[(&str, &str)]) -> Site {
    let mut text = String::from("<configuration>");
    for (name, value) in properties {
        text += &format!("<property><name>{name}</name><value>{value}</value></property>");
    }
    Site::parse(&(text + "</configuration>")).unwrap()
}

#[test]
fn an_empty_file_means_hadoops_defaults() {
    let site = site(&[]);
    assert_eq!(site.executor().unwrap(), ExecutorClass::Default);
    assert_eq!(site.cgroups().unwrap(), None);
    assert_eq!(site.memory().unwrap(), Some(Bytes(8 << 30)));
    assert_eq!(site.vcores().unwrap(), Some(8));
    assert_eq!(site.node_address().unwrap().port, None);
    assert_eq!(site.node_host().unwrap(), None);
    assert_eq!(site.node_manager().unwrap().as_deref(), Some("http://127.0.0.1:8042"));
    let managers = site.resource_managers().unwrap();
    assert_eq!(managers.len(), 1);
    assert_eq!(managers[0].url, "http://127.0.0.1:8088");
    assert!(!site.https().unwrap() && !site.kerberos().unwrap() && !site.recovery().unwrap());
    assert!(!site.supervised().unwrap());
    assert_eq!(site.opportunistic_queue().unwrap(), 0);
    assert!(site.scheduler_class().unwrap().ends_with("CapacityScheduler"));
    let error = site.local_dirs().unwrap_err().to_string();
    assert!(error.contains("${user.name}") && error.contains("yarn.local_dirs"), "{error}");
}

#[test]
fn directories_are_a_list_of_absolute_paths() {
    let key = "yarn.nodemanager.local-dirs";
    let dirs = site(&[(key, " /a/nm ,file:///b/nm,\n /c, ")]).local_dirs().unwrap();
    assert_eq!(dirs, [Path::new("/a/nm"), Path::new("/b/nm"), Path::new("/c")]);
    for wrong in ["", " , ", "relative", "/a,b"] {
        let error = site(&[(key, wrong)]).local_dirs().unwrap_err().to_string();
        assert!(error.contains(key) && error.contains("yarn-site.xml"), "{error}");
    }
}

#[test]
fn cgroups_need_the_linux_executor_and_a_handler() {
    const LCE: &str = "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor";
    const PREFIX: &str = "yarn.nodemanager.linux-container-executor";
    assert_eq!(site(&[(EXECUTOR, LCE)]).cgroups().unwrap(), None);
    let cpu = ("yarn.nodemanager.resource.cpu.enabled", "true");
    assert_eq!(site(&[cpu]).cgroups().unwrap(), None);
    let layout = site(&[(EXECUTOR, LCE), cpu]).cgroups().unwrap().unwrap();
    assert_eq!(
        (layout.hierarchy.as_str(), layout.v2, layout.strict),
        ("/hadoop-yarn", false, false)
    );
    let handler = format!("{PREFIX}.resources-handler.class");
    let strict = format!("{PREFIX}.cgroups.strict-resource-usage");
    let layout = site(&[
        (EXECUTOR, LCE),
        (&handler, "org.apache.hadoop.yarn.server.nodemanager.util.CgroupsLCEResourcesHandler"),
        (&strict, "true"),
        (HIERARCHY, "yarn/deep/"),
    ]);
    let layout = layout.cgroups().unwrap().unwrap();
    assert_eq!((layout.hierarchy.as_str(), layout.strict), ("/yarn/deep", true));
    for wrong in ["/", "/a/../b", "a//b"] {
        assert!(site(&[(EXECUTOR, LCE), cpu, (HIERARCHY, wrong)]).cgroups().is_err(), "{wrong}");
    }
    let other = site(&[(EXECUTOR, "com.example.Mine")]).executor().unwrap();
    assert_eq!(other, ExecutorClass::Other("com.example.Mine".into()));
}

#[test]
fn several_resource_managers_over_https() {
    let site = site(&[
        ("yarn.http.policy", "HTTPS_ONLY"),
        ("yarn.resourcemanager.ha.enabled", "true"),
        ("yarn.resourcemanager.ha.rm-ids", "rm1, rm2"),
        ("yarn.resourcemanager.hostname.rm1", "m1.example"),
        ("yarn.resourcemanager.webapp.https.address.rm2", "m2.example:9090"),
        ("yarn.nodemanager.hostname", "n7"),
        ("yarn.nodemanager.address", "${yarn.nodemanager.hostname}:45454"),
    ]);
    let urls: Vec<_> =
        site.resource_managers().unwrap().into_iter().map(|rm| (rm.id, rm.url)).collect();
    assert_eq!(
        urls,
        [
            (Some("rm1".into()), "https://m1.example:8090".into()),
            (Some("rm2".into()), "https://m2.example:9090".to_owned()),
        ]
    );
    assert_eq!(site.node_manager().unwrap().as_deref(), Some("https://n7:8044"));
    let node = site.node_address().unwrap();
    assert_eq!((node.host.as_str(), node.port), ("n7", Some(45454)));
    assert_eq!(site.node_host().unwrap().as_deref(), Some("n7"));
}

#[test]
fn addresses_are_checked() {
    let key = "yarn.nodemanager.webapp.address";
    let url = |value: &str| site(&[(key, value)]).node_manager();
    assert_eq!(url("n7").unwrap().as_deref(), Some("http://n7:8042"));
    assert_eq!(url("[::1]:80").unwrap().as_deref(), Some("http://[::1]:80"));
    assert_eq!(url("[::1]").unwrap().as_deref(), Some("http://[::1]:8042"));
    assert_eq!(url("n7:0").unwrap(), None);
    for wrong in ["n7:port", ":80", "a b:80", "user@n7:80", "n7:70000", "::1:80"] {
        assert!(url(wrong).is_err(), "{wrong}");
    }
    let manager = ("yarn.resourcemanager.webapp.address", "m1:0");
    let error = site(&[manager]).resource_managers().unwrap_err().to_string();
    assert!(error.contains("its port is 0"), "{error}");
}

#[test]
fn resources_are_numbers_or_measured() {
    let detect = ("yarn.nodemanager.resource.detect-hardware-capabilities", "true");
    let memory = "yarn.nodemanager.resource.memory-mb";
    assert_eq!(site(&[detect]).memory().unwrap(), None);
    assert_eq!(site(&[detect, (memory, "2048")]).memory().unwrap(), Some(Bytes(2 << 30)));
    assert!(site(&[(memory, "2 GB")]).memory().is_err());
}

#[test]
fn a_directory_without_a_yarn_site_says_which_key_to_set() {
    let dir = tempfile::tempdir().unwrap();
    let error = Site::read(dir.path(), &Trust::of("yarn")).unwrap_err().to_string();
    assert!(error.contains("yarn.conf_dir"), "{error}");
    std::fs::write(dir.path().join("yarn-site.xml"), "<configuration/>").unwrap();
    std::fs::write(
        dir.path().join("core-site.xml"),
        "<configuration><property name='hadoop.tmp.dir' value='/h'/></configuration>",
    )
    .unwrap();
    let site = Site::read(dir.path(), &Trust::of("yarn")).unwrap();
    assert_eq!(site.local_dirs().unwrap(), [Path::new("/h/nm-local-dir")]);
    assert_eq!(site.file(), dir.path().join("yarn-site.xml"));
}

#[test]
fn resources_beside_memory_and_vcores_are_named_where_hadoop_looks() {
    let none: [&str; 0] = [];
    assert_eq!(site(&[]).other_resource_types().unwrap(), none);
    let plugins = ("yarn.nodemanager.resource-plugins", "yarn.io/gpu");
    let types = ("yarn.resource-types", "memory-mb, vcores, yarn.io/fpga,yarn.io/gpu");
    assert_eq!(
        site(&[plugins, types]).other_resource_types().unwrap(),
        ["yarn.io/fpga", "yarn.io/gpu"]
    );
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("yarn-site.xml", "<configuration/>");
    write(
        "resource-types.xml",
        "<configuration><property name='yarn.resource-types' value='license'/></configuration>",
    );
    let site = Site::read(dir.path(), &Trust::of("yarn")).unwrap();
    assert_eq!(site.other_resource_types().unwrap(), ["license"]);
    write("resource-types.xml", "<configuration>");
    let error = site.other_resource_types().unwrap_err().to_string();
    assert!(error.contains("resource-types.xml"), "{error}");
}
