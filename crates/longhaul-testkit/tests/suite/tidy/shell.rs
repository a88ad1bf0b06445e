//! Shell scripts: bash, executable, and stopped by their first error.

use super::finding::Finding;
use super::sources::SourceFile;

const SHEBANG: &str = "#!/usr/bin/env bash";
const STRICT: &str = "set -euo pipefail";

/// Looks at every script, and at every file that begins like one.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_script(file)) {
        let sourced = file.path.ends_with(".sh");
        if !file.text.starts_with(SHEBANG) {
            let mend = "begin with `#!/usr/bin/env bash`";
            findings.push(Finding::at(
                &file.path,
                1,
                "is not a bash script by its first line",
                mend,
            ));
        }
        if !file.text.lines().any(|line| line == STRICT) {
            let mend = "add `set -euo pipefail` under the opening comment";
            findings.push(Finding::new(&file.path, "goes on after an error", mend));
        }
        if !sourced && !file.executable {
            let mend = "chmod +x it (a file that is only sourced ends in .sh)";
            findings.push(Finding::new(&file.path, "is not executable", mend));
        }
    }
    findings
}

fn is_script(file: &SourceFile) -> bool {
    let named = file.path.ends_with(".sh") || file.path == ".ci/run";
    named || file.executable && !file.is_rust() || file.text.starts_with("#!") && !file.is_rust()
}

#[test]
fn a_script_without_strict_mode_is_found() {
    let house = "
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
        super::finding::summaries(&check(&super::sources::fixture(house))),
        [
            "scripts/bad:1: is not a bash script by its first line",
            "scripts/bad: goes on after an error",
            "scripts/bad: is not executable",
        ]
    );
}
