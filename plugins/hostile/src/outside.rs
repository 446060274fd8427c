//! Reaches for what lies outside the sandbox.

use std::net::IpAddr;

use bulkhead_plugin::Error;
use schemars::JsonSchema;
use serde::Deserialize;
use wasip2::clocks::monotonic_clock;
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::{
    ErrorCode, IpAddress, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress, Ipv6SocketAddress, Network,
};
use wasip2::sockets::tcp_create_socket::create_tcp_socket;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Path {
    /// The file's path.
    path: String,
}

pub(crate) fn read_file(Path { path }: Path) -> Result<String, Error> {
    Ok(std::fs::read_to_string(path)?)
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct File {
    /// The file's path.
    path: String,
    /// What it will hold.
    text: String,
}

pub(crate) fn write_file(File { path, text }: File) -> Result<String, Error> {
    std::fs::write(&path, &text)?;
    Ok(format!("{} bytes written to {path}", text.len()))
}

pub(crate) fn environment() -> String {
    std::env::vars().map(|(key, value)| format!("{key}={value}\n")).collect()
}

/// Pollables are entries in a table of the host.
pub(crate) fn flood_handles() -> String {
    let mut handles = Vec::new();
    for _ in 0..10_000_000 {
        handles.push(monotonic_clock::subscribe_duration(1_000_000_000));
    }
    handles.len().to_string()
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Peer {
    /// A name or an address.
    host: String,
    /// The TCP port.
    port: u16,
}

pub(crate) fn connect(Peer { host, port }: Peer) -> Result<String, Error> {
    let network = instance_network();
    let address = match host.parse() {
        Ok(IpAddr::V4(address)) => IpAddress::Ipv4(address.octets().into()),
        Ok(IpAddr::V6(address)) => IpAddress::Ipv6(address.segments().into()),
        Err(_) => resolve(&network, &host)?,
    };
    let (family, remote) = match address {
        IpAddress::Ipv4(address) => (IpAddressFamily::Ipv4, IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address })),
        IpAddress::Ipv6(address) => (
            IpAddressFamily::Ipv6,
            IpSocketAddress::Ipv6(Ipv6SocketAddress { port, flow_info: 0, address, scope_id: 0 }),
        ),
    };
    let socket = create_tcp_socket(family).map_err(|code| failed("socket", code))?;
    socket.start_connect(&network, remote).map_err(|code| failed("connect", code))?;
    socket.subscribe().block();
    socket.finish_connect().map_err(|code| failed("connect", code))?;
    Ok(format!("connected to {host}:{port}"))
}

fn resolve(network: &Network, host: &str) -> Result<IpAddress, Error> {
    let names = resolve_addresses(network, host).map_err(|code| failed("resolve", code))?;
    names.subscribe().block();
    match names.resolve_next_address() {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Error::new("resolve: no address")),
        Err(code) => Err(failed("resolve", code)),
    }
}

fn failed(step: &str, code: ErrorCode) -> Error {
    Error::new(format!("{step}: {}", code.name()))
}
