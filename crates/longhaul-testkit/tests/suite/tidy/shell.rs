//! Shell scripts use bash, are executable, and stop at the first error.

use super::finding::Finding;
use super::sources::SourceFile;

const SHEBANG: &str = "#!/usr/bin/env bash";
const STRICT: &str = "set -euo pipefail";

/// Checks every script, and every file with a shebang.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_script(file)) {
        let is_sourced = file.path.ends_with(".sh");
        if !file.text.starts_with(SHEBANG) {
            let fix = "begin with `#!/usr/bin/env bash`";
            findings.push(Finding::at(&file.path, 1, "has no bash shebang in its first line", fix));
        }
        if !file.text.lines().any(|line| line == STRICT) {
            let fix = "add `set -euo pipefail` under the opening comment";
            findings.push(Finding::new(&file.path, "continues after an error", fix));
        }
        if !is_sourced && !file.executable {
            let fix = "chmod +x it (a file that is only sourced ends in .sh)";
            findings.push(Finding::new(&file.path, "is not executable", fix));
        }
    }
    findings
}

fn is_script(file: &SourceFile) -> bool {
    let is_named_script = file.path.ends_with(".sh") || file.path == ".ci/run";
    is_named_script
        || file.executable && !file.is_rust()
        || file.text.starts_with("#!") && !file.is_rust()
}

#[test]
fn a_script_without_strict_mode_is_found() {
    let source = "
        //- scripts/good +x
        #!/usr/bin/env bash
        # Does good.
        set -euo pipefail
        //- scripts/lib.sh
        #!/usr/bin/env bash
        set -euo pipefail
        //- scripts/bad
        #!/bin/sh
        rm -rf \"$1/\"
        //- scripts/packages.txt
        cc gcc
        ";
    assert_eq!(
        super::finding::summaries(&check(&super::sources::fixture(source))),
        [
            "scripts/bad:1: has no bash shebang in its first line",
            "scripts/bad: continues after an error",
            "scripts/bad: is not executable",
        ]
    );
}
