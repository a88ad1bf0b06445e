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

/// Blocks of 512 bytes of each output stream of a command that are kept on the disk of the sandbox.
const OUTPUT_BLOCKS_MAX: u64 = 131_072;

/// Maximum number of bytes of each output stream of a command.
pub(super) const OUTPUT_BYTES_MAX: u64 = OUTPUT_BLOCKS_MAX * 512;

/// Maximum number of bytes of an output stream in a response.
const CHUNK_BYTES: u64 = 256 << 10;

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
    // `cat` ends when its file has reached the limit. The rest of the output is read and dropped,
    // so that the command goes on.
    Ok(format!(
        "cd {dir} || exit 1\n\
         mkdir started 2>/dev/null || exit 0\n\
         [ -e stdin ] || : >stdin\n\
         : >out; : >err; echo $$ >pid\n\
         keep() {{ (ulimit -f {OUTPUT_BLOCKS_MAX}; exec cat >\"$1\" 2>/dev/null); \
         exec cat >/dev/null; }}\n\
         {{ {{ ({args} <stdin >&3 2>&4 3>&- 4>&-); echo $? >status; }} 4>&1 | keep err 3>&-; }} \
         3>&1 | keep out\n\
         : >done\n"
    ))
}

/// Returns the script that waits for more output of a command, or for its end.
///
/// The first line of its output has the state (`new`, `run` or `end`), the exit code, and the sizes
/// of both streams. A chunk of each stream follows, in base64; a line with a dot separates them.
pub(super) fn poll(name: &str, offsets: [u64; 2]) -> String {
    let dir = command_dir(name);
    let [out, err] = offsets;
    let (from_out, from_err) = (out + 1, err + 1);
    // Programs in the background can keep the streams open after the end of the command. Their
    // output is waited for only briefly.
    format!(
        "exec 2>/dev/null\n\
         cd {dir} || {{ echo lost 0 0 0; exit; }}\n\
         i=0 g=0\n\
         while :; do\n\
           s= state=new; p=$(cat pid) && state=run\n\
           [ -n \"$p\" ] && ! kill -0 \"$p\" && state=end\n\
           s=$(cat status) && [ -n \"$s\" ] && g=$((g+1))\n\
           if [ -e done ] || [ $g -ge 5 ]; then state=end; fi\n\
           a=$(stat -c %s out || echo 0) b=$(stat -c %s err || echo 0)\n\
           [ $a -gt {out} ] || [ $b -gt {err} ] || [ $state = end ] || [ $i -ge 50 ] && break\n\
           i=$((i+1)); sleep 0.1 || sleep 1\n\
         done\n\
         echo $state ${{s:-137}} $a $b\n\
         tail -c +{from_out} out | head -c {CHUNK_BYTES} | base64; echo .\n\
         tail -c +{from_err} err | head -c {CHUNK_BYTES} | base64\n"
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
           old \"${{d#/tmp/}}\" && {{ [ -s \"$d/status\" ] || echo 137 >\"$d/status\"; : >\"$d/done\"; }}\n\
         done\n\
         [ -z \"$k\" ]\n"
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
        for (path, expected) in
            [("", "/workspace"), (".", "/workspace"), ("a/b", "/workspace/a/b"), ("/etc/x", "/etc/x")]
        {
            assert_eq!(absolute_path(path).unwrap(), expected);
        }
        assert!(absolute_path("a\0b").is_err());
    }
}
