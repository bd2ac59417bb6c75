//! Whether a name is this node's.
//!
//! A NodeManager's id begins with the canonical name of its address, which need not be what the
//! node calls itself: "localhost", a name of DNS, one of several. So beside its own name the node
//! is called by any that resolves to one of its addresses.
//!
//! Limits: a lookup waits for the resolver. Where `net.ipv4.ip_nonlocal_bind` is on the kernel
//! lets every address be bound, and any that resolves passes.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};

use lrs_hadoop_conf::site::own_name;

/// Whether `host`, a name or an address, is this node.
///
/// # Errors
/// It cannot be looked up.
pub(super) fn is_this_node(host: &str) -> io::Result<bool> {
    if host.eq_ignore_ascii_case(&own_name()) {
        return Ok(true);
    }
    for address in (host, 0).to_socket_addrs()? {
        if is_ours(address.ip())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A socket can be bound to a node's own addresses; no list of them is needed, which would take
/// netlink, and that is closed to the service.
fn is_ours(address: IpAddr) -> io::Result<bool> {
    if address.is_unspecified() || address.is_multicast() {
        return Ok(false);
    }
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        // A node without IPv6 has no address of it.
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_node_has_its_name_and_its_addresses() {
        for ours in [own_name().as_str(), "localhost", "127.0.0.1", "127.1.2.3"] {
            assert!(is_this_node(ours).unwrap(), "{ours}");
        }
        // TEST-NET-1 (RFC 5737) and the documentation prefix (RFC 3849) belong to no host.
        for others in ["192.0.2.1", "2001:db8::1", "0.0.0.0", "224.0.0.1"] {
            assert!(!is_this_node(others).unwrap(), "{others}");
        }
        assert!(is_this_node("node1.invalid").is_err(), "RFC 6761: it never resolves");
    }
}
