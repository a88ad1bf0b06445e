//! Shell scripts that run in the sandbox, for the POSIX shell and the programs of busybox.
//!
//! Invariant: each script can be run twice. A response can be lost after the script has run.

use std::fmt::Write as _;

use longhaul_core::port::sandbox::{EPOCH_VAR, SandboxCommand, SandboxError, WORKSPACE};

/// Environment variable that marks all processes of a command.
const COMMAND_VAR: &str = "LONGHAUL_COMMAND";

/// Prefix of the names of commands, which are also those of their sessions. An epoch and a random
/// number follow.
pub(super) const COMMAND_PREFIX: &str = "lh-";

/// Maximum number of reads, of 64 KiB at most, whose output is stored in one file.
const READS_PER_FILE: u32 = 256;

/// Maximum number of files of an output stream. While there are more, the command waits for the
/// output to be received.
const OUTPUT_FILES_MAX: u32 = 4;

/// Maximum number of bytes of an output stream in a response.
pub(super) const CHUNK_BYTES: u64 = 4 << 20;

/// Position in an output stream: the number of a file, and an offset in the file.
pub(super) type OutputPosition = (u64, u64);

/// Creates the work folder, and fails with a sentence if a needed program is missing.
pub(super) const PREPARE: &str = r#"
for p in base64 tar xargs stat; do
  command -v $p >/dev/null || { echo "the program $p is missing in the image"; exit 1; }
done
mkdir -p /workspace 2>/dev/null
[ -w /workspace ] || sudo -n sh -c "mkdir -p /workspace && chown $(id -u):$(id -g) /workspace" \
  </dev/null >/dev/null 2>&1
[ -w /workspace ] || { echo "its user can't write /workspace; add this to the Dockerfile:" \
  "RUN mkdir -p /workspace && chown $(id -u):$(id -g) /workspace"; exit 1; }
"#;

/// Returns a text as one argument of the shell.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the absolute path of a path in the sandbox.
pub(super) fn absolute_path(path: &str) -> Result<String, SandboxError> {
    if path.contains('\0') {
        return Err(SandboxError::File(format!("{path:?} is no path: it contains a NUL")));
    }
    Ok(match path {
        "" | "." => WORKSPACE.to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("{WORKSPACE}/{path}"),
    })
}

/// Returns the folder with the files of a command.
pub(super) fn command_dir(name: &str) -> String {
    format!("/tmp/{name}")
}

/// Returns the line that starts a command whose script has been uploaded.
pub(super) fn start(name: &str) -> String {
    let dir = command_dir(name);
    format!("{COMMAND_VAR}={name} /bin/sh {dir}/run </dev/null >/dev/null 2>&1")
}

/// Returns the script that runs a command, stores its output in two files and then its exit code.
pub(super) fn run(name: &str, command: &SandboxCommand) -> Result<String, SandboxError> {
    let mut args = String::from("exec env");
    let epoch = command.epoch.0.to_string();
    let env = command.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (key, value) in env.chain([(EPOCH_VAR, epoch.as_str()), (COMMAND_VAR, name)]) {
        if key.is_empty() || key.contains('=') {
            let message = format!("{key:?} can't be the name of an environment variable");
            return Err(SandboxError::Refused(message));
        }
        _ = write!(args, " {}", quote(&format!("{key}={value}")));
    }
    let cwd = absolute_path(command.cwd.as_deref().unwrap_or_default())?;
    let exec = r#"cd -- "$1" && shift && exec "$@""#;
    _ = write!(args, " /bin/sh -c {} sh {}", quote(exec), quote(&cwd));
    for arg in &command.argv {
        _ = write!(args, " {}", quote(arg));
    }
    if args.contains('\0') || command.argv.is_empty() {
        let message = "the command can't be run: it is empty or contains a NUL".to_owned();
        return Err(SandboxError::Refused(message));
    }
    let dir = command_dir(name);
    Ok(format!(
        "cd {dir} || exit 1\n\
         mkdir started 2>/dev/null || exit 0\n\
         [ -e stdin ] || : >stdin\n\
         echo $$ >pid\n\
         keep() {{\n\
           n=0; while dd bs=65536 count={READS_PER_FILE} of=$1.$n 2>/dev/null && [ -s $1.$n ]; do\n\
             n=$((n+1))\n\
             while [ -e $1.$((n-{OUTPUT_FILES_MAX})) ]; do sleep 0.1 || sleep 1; done\n\
           done\n\
         }}\n\
         {{ {{ ({args} <stdin >&3 2>&4 3>&- 4>&-); echo $? >status; }} 4>&1 | keep err 3>&-; }} \
         3>&1 | keep out\n\
         : >done\n"
    ))
}

/// Returns the script that waits for more output of a command, or for its end.
///
/// The first line of its output has the state (`new`, `run` or `end`), the exit code, and for each
/// stream the file and the offset of its chunk. The chunks follow, in base64; a line with a dot
/// separates them.
pub(super) fn poll(name: &str, [out, err]: [OutputPosition; 2]) -> String {
    let dir = command_dir(name);
    // Files before the position have been received. Programs in the background can keep the
    // streams open after the end of the command; their output is waited for only briefly.
    // The exit code is read after the check whether the command has ended: read before it, the code
    // of a command that ends between the two would be missing.
    format!(
        "exec 2>/dev/null\n\
         cd {dir} || {{ echo lost 0 0 0 0 0; exit; }}\n\
         rm -f out.$(({out_file}-1)) err.$(({err_file}-1))\n\
         find_chunk() {{\n\
           n=$2 o=$3 z=$(stat -c %s $1.$2 || echo 0)\n\
           if [ $o -ge $z ] && [ -s $1.$((n+1)) ]; then\n\
             n=$((n+1)); o=0; z=$(stat -c %s $1.$n)\n\
           fi\n\
           if [ $((z-o)) -gt {CHUNK_BYTES} ] || [ -s $1.$((n+1)) ]; then rest=1; fi\n\
           [ $o -lt $z ] && more=1\n\
         }}\n\
         i=0 g=0\n\
         while :; do\n\
           s= state=new; p=$(cat pid) && state=run\n\
           [ -n \"$p\" ] && ! kill -0 \"$p\" && state=end\n\
           [ -e done ] && state=end\n\
           s=$(cat status) && [ -n \"$s\" ] && g=$((g+1))\n\
           [ $g -ge 5 ] && state=end\n\
           more= rest=\n\
           find_chunk out {out_file} {out_offset}; a=$n b=$o\n\
           find_chunk err {err_file} {err_offset}; c=$n d=$o\n\
           [ -n \"$more\" ] || [ $state = end ] || [ $i -ge 50 ] && break\n\
           i=$((i+1)); sleep 0.1 || sleep 1\n\
         done\n\
         [ -n \"$rest\" ] && state=run\n\
         echo $state ${{s:-137}} $a $b $c $d\n\
         tail -c +$((b+1)) out.$a | head -c {CHUNK_BYTES} | base64; echo .\n\
         tail -c +$((d+1)) err.$c | head -c {CHUNK_BYTES} | base64\n",
        out_file = out.0,
        out_offset = out.1,
        err_file = err.0,
        err_offset = err.1,
    )
}

/// Returns the script that kills all processes of the commands whose name begins with `prefix` and
/// whose epoch is below the limit.
pub(super) fn kill(prefix: &str, epoch_limit: u64) -> String {
    // The shell computes with 64 bits and a sign.
    let limit = epoch_limit.min(i64::MAX as u64);
    format!(
        "exec 2>/dev/null\n\
         old() {{ e=${{1#{COMMAND_PREFIX}}}; [ \"${{e%%-*}}\" -lt {limit} ]; }}\n\
         for d in /tmp/{prefix}*; do old \"${{d#/tmp/}}\" && mkdir -p \"$d/started\"; done\n\
         r=0; while [ $r -lt 100 ]; do\n\
           k=; for f in $(grep -l {COMMAND_VAR}={prefix} /proc/[0-9]*/environ); do\n\
             n=$(tr '\\0' '\\n' <$f | sed -n 's/^{COMMAND_VAR}=//p'); f=${{f#/proc/}}\n\
             old \"$n\" && kill -9 \"${{f%%/*}}\" && k=1\n\
           done\n\
           [ -z \"$k\" ] && break; r=$((r+1)); sleep 0.02\n\
         done\n\
         for d in /tmp/{prefix}*; do\n\
           old \"${{d#/tmp/}}\" || continue\n\
           [ -s \"$d/status\" ] || echo 137 >\"$d/status\"; : >\"$d/done\"\n\
         done\n\
         [ -z \"$k\" ]\n"
    )
}

/// Returns the script that fails with a sentence if a path is no file.
pub(super) fn check_file(path: &str) -> String {
    format!(
        "p={}\n\
         [ -f \"$p\" ] && exit\n\
         [ -e \"$p\" ] && echo 'it is not a file' || echo 'it does not exist'; exit 1\n",
        quote(path)
    )
}

/// Returns the script that removes the files of a command.
pub(super) fn remove(name: &str) -> String {
    format!("rm -rf {}\n", command_dir(name))
}

/// Returns the script that prints the names of the entries of a folder in base64, and then, after a
/// line with a dot, their modes and sizes in the same order.
pub(super) fn list(path: &str) -> String {
    format!(
        "cd -- {} || exit 1\n\
         names() {{ for f in * .[!.]* ..?*; do\n\
           if [ -e \"$f\" ] || [ -L \"$f\" ]; then printf './%s\\0' \"$f\"; fi\n\
         done; }}\n\
         names | base64; echo .; names | xargs -0r stat -c '%f %s' 2>/dev/null\n",
        quote(path)
    )
}

/// Returns the script that unpacks an archive. A tree is unpacked into the folder `to`, a file or
/// link into the folder that will contain it.
pub(super) fn unpack(archive: &str, dir: &str) -> String {
    let dir = quote(dir);
    format!(
        "mkdir -p -- {dir} && tar -xof {archive} -C {dir} 2>&1; r=$?; rm -f {archive}; exit $r\n"
    )
}

/// Returns the script that packs a file or tree, and prints whether it is a tree.
pub(super) fn pack(path: &str, archive: &str) -> String {
    format!(
        "p={}\n\
         if [ -d \"$p\" ] && [ ! -L \"$p\" ]; then k=tree; set -- \"$p\" .\n\
         elif [ -f \"$p\" ] || [ -L \"$p\" ]; then \
         k=file; set -- \"$(dirname -- \"$p\")\" \"$(basename -- \"$p\")\"\n\
         else echo \"$p: no such file or folder\"; exit 1; fi\n\
         o=$(tar -cf {archive} -C \"$1\" -- \"$2\" 2>&1)\n\
         if [ $? -gt 1 ]; then echo \"$o\"; exit 1; fi; echo $k\n",
        quote(path)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_one_argument() {
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn relative_paths_are_below_the_work_folder() {
        for (path, expected) in [
            ("", "/workspace"),
            (".", "/workspace"),
            ("a/b", "/workspace/a/b"),
            ("/etc/x", "/etc/x"),
        ] {
            assert_eq!(absolute_path(path).unwrap(), expected);
        }
        assert!(absolute_path("a\0b").is_err());
    }
}
