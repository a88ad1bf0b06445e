//! The filter of system calls of a sandbox, as a program of the kernel's packet filter.
//!
//! Namespaces do not cover these calls: sockets of virtual machines reach the host of a machine,
//! keys belong to the user of the worker, and io_uring creates sockets past the filter.

/// Architecture of the filter: its number for the audit system, and the numbers of its calls.
struct Arch {
    audit: u32,
    socket: u32,
    /// Calls that programs try out and do without.
    absent: &'static [u32],
    denied: &'static [u32],
}

/// io_uring_setup, io_uring_enter, io_uring_register; then add_key, request_key, keyctl,
/// perf_event_open, bpf, userfaultfd.
#[cfg(target_arch = "x86_64")]
const ARCH: Option<Arch> = Some(Arch {
    audit: 0xC000_003E,
    socket: 41,
    absent: &[425, 426, 427],
    denied: &[248, 249, 250, 298, 321, 323],
});
#[cfg(target_arch = "aarch64")]
const ARCH: Option<Arch> = Some(Arch {
    audit: 0xC000_00B7,
    socket: 198,
    absent: &[425, 426, 427],
    denied: &[217, 218, 219, 241, 280, 282],
});
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCH: Option<Arch> = None;

/// AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK.
const FAMILIES: &[u32] = &[1, 2, 10, 16];
/// First number of a call of the x32 interface, which has other numbers for the same calls.
const X32: u32 = 0x4000_0000;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
const EAFNOSUPPORT: u32 = 97;

/// Offsets of the fields of a call.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7FFF_0000;

/// Returns the filter for bubblewrap. On an architecture without a filter everything is allowed.
pub(crate) fn filter_bytes() -> Vec<u8> {
    let mut program = Vec::new();
    let mut add = |code: u16, (on_true, on_false): (u8, u8), value: u32| {
        program.extend_from_slice(&code.to_ne_bytes());
        program.extend_from_slice(&[on_true, on_false]);
        program.extend_from_slice(&value.to_ne_bytes());
    };
    if let Some(arch) = ARCH {
        // Calls of a 32-bit program have other numbers.
        add(LOAD, (0, 0), ARCHITECTURE);
        add(JUMP_IF_EQUAL, (1, 0), arch.audit);
        add(RETURN, (0, 0), errno(ENOSYS));
        add(LOAD, (0, 0), NUMBER);
        add(JUMP_IF_AT_LEAST, (0, 1), X32);
        add(RETURN, (0, 0), errno(ENOSYS));
        let absent = arch.absent.iter().map(|call| (*call, ENOSYS));
        for (call, error) in absent.chain(arch.denied.iter().map(|call| (*call, EPERM))) {
            add(JUMP_IF_EQUAL, (0, 1), call);
            add(RETURN, (0, 0), errno(error));
        }
        add(JUMP_IF_EQUAL, (1, 0), arch.socket);
        add(RETURN, (0, 0), ALLOW);
        add(LOAD, (0, 0), FIRST_ARGUMENT);
        for family in FAMILIES {
            add(JUMP_IF_EQUAL, (0, 1), *family);
            add(RETURN, (0, 0), ALLOW);
        }
        add(RETURN, (0, 0), errno(EAFNOSUPPORT));
    } else {
        add(RETURN, (0, 0), ALLOW);
    }
    program
}

/// Returns the verdict that a call fails with this error.
const fn errno(error: u32) -> u32 {
    0x0005_0000 | error
}
