//! Programs that try to reach files and rights outside of their sandbox.

use longhaul_core::port::sandbox::{ExecStatus, Sandbox};
use longhaul_testkit::conformance::sandboxes::fixture::{run, run_script, shell};

use crate::suite::local::fixture::Local;

/// Asserts that a script fails and prints nothing of the host.
async fn assert_fails(sandbox: &dyn Sandbox, script: &str) {
    let (status, output) = run(sandbox, shell(script)).await.expect("run");
    assert_ne!(status, ExecStatus::Exited(0), "{script}: {}", output.stdout_text());
    assert_eq!(output.stdout_text(), "", "{script}");
}

#[tokio::test]
async fn only_the_folders_of_the_sandbox_are_visible() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    let list = run_script(&*sandbox, "cd / && ls; ls /home /root 2>/dev/null; ls -A ~").await;
    let visible = [
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "proc",
        "run",
        "sbin",
        "tmp",
        "usr",
        "var",
        "workspace",
        "/home:",
        "agent",
        "",
    ];
    let others: Vec<&str> = list.lines().filter(|line| !visible.contains(line)).collect();
    assert_eq!(others, [""; 0], "{list}");
    for path in ["/etc/shadow", "/etc/ssh", "/etc/ssl/private", "/var/log", "/sys", "/boot"] {
        assert_fails(&*sandbox, &format!("ls {path}")).await;
    }
    let home = std::env::var("HOME").expect("this process has a home folder");
    assert_fails(&*sandbox, &format!("ls '{home}'")).await;
}

#[tokio::test]
async fn dots_and_links_do_not_lead_out() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    let secret = local.host_dir().join("secret");
    std::fs::write(&secret, "of the host").expect("write");
    let secret = secret.display();
    assert_fails(&*sandbox, &format!("cat ../../../../..{secret}")).await;
    assert_fails(&*sandbox, &format!("ln -s {secret} link; cat link")).await;
    assert_fails(&*sandbox, &format!("ln {secret} hard")).await;
    assert_fails(&*sandbox, "ln /usr/bin/env hard").await;
    assert_fails(&*sandbox, &format!("cat /proc/1/root{secret}")).await;
    assert_fails(&*sandbox, &format!("cat /proc/self/cwd/../..{secret}")).await;
}

#[tokio::test]
async fn the_machine_is_read_only() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    for path in ["/usr/file", "/etc/file", "/file", "/var/file", "/run/file", "/home/file"] {
        assert_fails(&*sandbox, &format!("echo x > {path}")).await;
    }
    for path in ["/etc/passwd", "/etc/hosts", "/usr/bin/env"] {
        assert_fails(&*sandbox, &format!("echo x >> {path}")).await;
        assert_fails(&*sandbox, &format!("chmod 777 {path}")).await;
    }
}

/// The kernel lets the owner of a setting change it. The owner of all settings is root, who may be
/// the user of the worker.
#[tokio::test]
async fn settings_of_the_kernel_are_read_only() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    let file = "/proc/sys/kernel/core_pattern";
    let before = std::fs::read_to_string(file).expect("read a setting");
    let script = format!("cat {file} > value; cat value > {file}");
    assert_fails(&*sandbox, &script).await;
    assert_fails(&*sandbox, "echo 0 > /proc/sys/kernel/randomize_va_space").await;
    assert_fails(&*sandbox, "echo h > /proc/sysrq-trigger").await;
    assert_eq!(std::fs::read_to_string(file).expect("read a setting"), before);
}

#[tokio::test]
async fn processes_of_the_machine_are_out_of_reach() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    let own = std::process::id();
    // Attaches to the process, sends it a signal and reads its memory and its environment.
    let script = format!(
        "import ctypes, os\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         assert libc.ptrace(16, {own}, None, None) == -1\n\
         assert ctypes.get_errno() == 3, ctypes.get_errno()\n\
         try: os.kill({own}, 0); raise SystemExit('signal')\n\
         except ProcessLookupError: pass\n\
         pids = [int(name) for name in os.listdir('/proc') if name.isdigit()]\n\
         assert len(pids) < 10, pids\n\
         for pid in pids:\n\
         \x20 assert b'CARGO' not in open(f'/proc/{{pid}}/environ', 'rb').read()\n\
         print('done')\n"
    );
    sandbox.write("attack.py", script.as_bytes()).await.expect("write");
    assert_eq!(run_script(&*sandbox, "python3 attack.py").await, "done\n");
}

#[tokio::test]
async fn nothing_can_be_mounted() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    for script in [
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /usr",
        "umount /usr",
        "unshare --user --mount true",
        "unshare --map-root-user true",
        "mknod device b 7 0",
        "chroot /workspace true",
    ] {
        assert_fails(&*sandbox, script).await;
    }
}

#[tokio::test]
async fn no_program_gains_rights() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    let script = "cp /usr/bin/id /workspace/id; chmod 6755 id; ./id -u; ./id -g; id -G";
    assert_eq!(run_script(&*sandbox, script).await, "1000\n1000\n1000\n");
    let status = run_script(&*sandbox, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status").await;
    for line in status.lines() {
        let (name, value) = line.split_once(':').expect("a field");
        let expected = if name == "NoNewPrivs" { "1" } else { "0000000000000000" };
        assert_eq!(value.trim(), expected, "{name}");
    }
    assert_fails(&*sandbox, "python3 -c 'import os; os.setuid(0)'").await;
    assert_fails(&*sandbox, "chown 0:0 /workspace").await;
}

#[tokio::test]
async fn commands_inherit_nothing_of_the_worker() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    let names = run_script(&*sandbox, "env | cut -d= -f1 | sort").await;
    let names: Vec<&str> = names.lines().collect();
    let expected =
        ["HOME", "LANG", "LONGHAUL_COMMAND", "LONGHAUL_EPOCH", "PATH", "PWD", "TMPDIR", "USER"];
    let others: Vec<_> = names.iter().filter(|name| !expected.contains(*name)).collect();
    // Some shells add these.
    assert!(others.iter().all(|name| ["OLDPWD", "SHLVL", "_"].contains(name)), "{names:?}");
    let descriptors = "python3 -c 'import os; print(sorted(os.listdir(\"/proc/self/fd\"))[:3], \
                       len(os.listdir(\"/proc/self/fd\")))'";
    // The fourth one is that of the list itself.
    assert_eq!(run_script(&*sandbox, descriptors).await, "['0', '1', '2'] 4\n");
    let (_, output) = run(&*sandbox, shell("echo x > /dev/tty")).await.expect("run");
    assert!(!output.stderr.is_empty(), "the command has a terminal");
    assert_eq!(
        run_script(&*sandbox, "cat /proc/sys/kernel/hostname; id -un").await,
        "sandbox\nagent\n"
    );
}

#[tokio::test]
async fn dangerous_system_calls_are_refused() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    // AF_VSOCK, AF_PACKET, AF_ALG and AF_BLUETOOTH; io_uring_setup; raw and forwarded packets.
    let script = "import ctypes, socket, os\n\
        for family in (40, 17, 38, 31):\n\
        \x20 try: socket.socket(family, socket.SOCK_STREAM, 0); raise SystemExit(f'family {family}')\n\
        \x20 except OSError as error: assert error.errno == 97, error\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        assert libc.syscall(425, 1, 0) == -1 and ctypes.get_errno() == 38\n\
        socket.socket(socket.AF_UNIX); socket.socket(socket.AF_INET); socket.socket(socket.AF_INET6)\n\
        try: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); raise SystemExit('raw')\n\
        except PermissionError: pass\n\
        print('done')\n";
    sandbox.write("attack.py", script.as_bytes()).await.expect("write");
    assert_eq!(run_script(&*sandbox, "python3 attack.py").await, "done\n");
}
