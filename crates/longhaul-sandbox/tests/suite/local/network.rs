//! Programs that try to reach the network, and those that may.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use longhaul_core::port::sandbox::{
    ExecStatus, NetworkPolicy, SandboxError, SandboxSecret, SandboxSpec, Sandboxes as _,
};
use longhaul_sandbox::local::{LocalOptions, LocalSandboxes};
use longhaul_testkit::conformance::sandboxes::fixture::{run, run_script, shell};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::suite::local::fixture::{Local, example, options};

#[tokio::test]
async fn without_a_network_nothing_is_reached() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    let tcp = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("listen");
    let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("bind");
    udp.set_nonblocking(true).expect("set an option");
    tcp.set_nonblocking(true).expect("set an option");
    let name = format!("longhaul-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let abstract_socket = UnixListener::bind_addr(&address).expect("listen");
    abstract_socket.set_nonblocking(true).expect("set an option");
    let (tcp_port, udp_port) =
        (tcp.local_addr().expect("port").port(), udp.local_addr().expect("port").port());
    let script = format!(
        "import socket\n\
         def refused(action):\n\
         \x20 try: action()\n\
         \x20 except OSError: return\n\
         \x20 raise SystemExit('reached')\n\
         for host in ('127.0.0.1', '10.0.0.1', '1.1.1.1', '169.254.169.254'):\n\
         \x20 refused(lambda: socket.create_connection((host, {tcp_port}), 5))\n\
         \x20 datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         \x20 datagram.connect(('127.0.0.1', {udp_port})) if host == '127.0.0.1' else \
               refused(lambda: datagram.sendto(b'x', (host, {udp_port})))\n\
         \x20 if host == '127.0.0.1': datagram.send(b'x')\n\
         refused(lambda: socket.getaddrinfo('example.com', 443))\n\
         refused(lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))\n\
         assert [name for _, name in socket.if_nameindex()] == ['lo'], socket.if_nameindex()\n\
         print('done')\n"
    );
    sandbox.write("attack.py", script.as_bytes()).await.expect("write");
    assert_eq!(run_script(&*sandbox, "python3 attack.py").await, "done\n");
    assert!(tcp.accept().is_err() && abstract_socket.accept().is_err());
    assert!(udp.recv(&mut [0]).is_err(), "a datagram has left the sandbox");
}

#[tokio::test]
async fn the_network_of_the_host_is_shared_on_request() {
    let local = Local::open().await;
    let spec = SandboxSpec { network: NetworkPolicy::Host, ..local.new_spec() };
    let sandbox = local.create_from(spec.clone()).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
    let port = listener.local_addr().expect("port").port();
    let script =
        format!("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'");
    run_script(&*sandbox, &script).await;
    let secrets = vec![secret("127.0.0.1")];
    let spec = SandboxSpec { secrets, ..spec };
    let error = local.provider.create(&spec).await.expect_err("no proxy replaces the secret");
    assert!(matches!(error, SandboxError::Refused(_)), "{error}");
}

/// A program reaches the hosts of the list through the proxy, and no other one.
#[tokio::test]
async fn only_the_hosts_of_the_list_are_reached() {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("listen");
    let port = listener.local_addr().expect("port").port();
    let local =
        Local::open_with(|options| LocalOptions { launcher: Some(example("launcher")), ..options });
    let local = local.await;
    let hosts = vec![format!("127.0.0.1:{port}")];
    let spec = SandboxSpec {
        network: NetworkPolicy::Hosts(hosts),
        secrets: vec![secret("secret.example.com")],
        ..local.new_spec()
    };
    let sandbox = local.create_from(spec).await;
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("accept");
        let mut request = vec![0; 1024];
        let count = stream.read(&mut request).await.expect("read");
        assert!(request[..count].starts_with(b"GET /path HTTP/1.1\r\n"));
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
        stream.write_all(response).await.expect("write");
    };
    let script = format!("curl -sS http://127.0.0.1:{port}/path; exit 7");
    let (reached, ()) = tokio::join!(run(&*sandbox, shell(&script)), serve);
    let (status, output) = reached.expect("run");
    assert_eq!((status, output.stdout_text().as_str()), (ExecStatus::Exited(7), "hello"));

    let mut refused = Vec::new();
    let mut on_output = |_, bytes: &[u8]| refused.extend_from_slice(bytes);
    let command = shell("curl -sS https://example.com; curl -sS --noproxy '*' http://1.1.1.1");
    let exit = sandbox.exec(command, &mut on_output).await.expect("run");
    assert!(matches!(exit.status, ExecStatus::Exited(code) if code != 0), "{exit:?}");
    assert!(exit.refusals.iter().any(|line| line.contains("example.com")), "{exit:?}");

    let placeholder = "echo $API_TOKEN; cat /etc/longhaul/ca-bundle.pem | grep -c BEGIN";
    let output = run_script(&*sandbox, placeholder).await;
    let (token, certificates) = output.split_once('\n').expect("two lines");
    assert_eq!(token, secret("").placeholder());
    assert_ne!(certificates.trim(), "0");
    run_script(
        &*sandbox,
        "test -z \"$(ls -A ~)\" && ! grep -r the-secret-value /run/longhaul /etc",
    )
    .await;
}

#[tokio::test]
async fn a_list_of_hosts_needs_a_launcher() {
    let temp = tempfile::tempdir().expect("create a temporary directory");
    let provider = LocalSandboxes::open(options(temp.path())).await.expect("open");
    let spec = |hosts: &[&str]| SandboxSpec {
        name: "sandbox".to_owned(),
        network: NetworkPolicy::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect()),
        ..SandboxSpec::default()
    };
    let error = provider.create(&spec(&["example.com"])).await.expect_err("refuse");
    assert!(error.to_string().contains("launcher"), "{error}");
    let error = provider.create(&spec(&["not a host"])).await.expect_err("refuse");
    assert!(error.to_string().contains("not a host"), "{error}");
}

fn secret(host: &str) -> SandboxSecret {
    SandboxSecret {
        name: "API_TOKEN".to_owned(),
        value: "the-secret-value".to_owned(),
        hosts: vec![host.to_owned()],
    }
}
