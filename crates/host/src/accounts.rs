//! Accounts and host names of a program that is linked statically (`packaging/build --static`).
//!
//! glibc finds users, groups and hosts by modules that /etc/nsswitch.conf names, shared libraries. A
//! static program that loads one has two C libraries, and dies by SIGSEGV: on Debian, where that file says
//! `passwd: files systemd`, of the first uid that /etc/passwd does not have. So such a program reads
//! the files alone, and asks DNS for hosts; both are within it.
//!
//! Limit. It does not know the users and groups of LDAP, sssd or systemd: a uid of theirs is shown as
//! a number, and is in no group by the account database. A dynamic program asks every module.

/// Keeps a static program from loading modules; in any other it does nothing. To be called before
/// there is a second thread.
///
/// # Panics
/// If glibc does not know its own databases, which is a fault of the build.
pub fn without_modules() {
    #[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
    {
        use std::ffi::{CStr, c_char, c_int};
        unsafe extern "C" {
            fn __nss_configure_lookup(database: *const c_char, modules: *const c_char) -> c_int;
        }
        let files: [(&CStr, &CStr); 4] = [
            (c"passwd", c"files"),
            (c"group", c"files"),
            (c"initgroups", c"files"),
            (c"hosts", c"files dns"),
        ];
        for (database, modules) in files {
            // SAFETY: both are strings that end with a zero and live for ever; one thread runs.
            let status = unsafe { __nss_configure_lookup(database.as_ptr(), modules.as_ptr()) };
            assert_eq!(status, 0, "glibc cannot keep its modules for {database:?} out");
        }
    }
}
