//! Scripts for the POSIX shell that save and restore the files of a sandbox. They run in the work
//! folder.

/// Functions and variables of all scripts.
pub(super) const COMMON: &str = r#"set -eu
command -v git >/dev/null 2>&1 || { echo 'skipped the sandbox has no git'; exit 0; }
dir=/tmp/.longhaul-workspace
export GIT_DIR="$dir/git" GIT_WORK_TREE="$PWD" LC_ALL=C
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=longhaul GIT_AUTHOR_EMAIL=files@longhaul.invalid
export GIT_COMMITTER_NAME=longhaul GIT_COMMITTER_EMAIL=files@longhaul.invalid
# The same files are the same commit.
export GIT_AUTHOR_DATE='@0 +0000' GIT_COMMITTER_DATE='@0 +0000'
g() {
    git -c core.autocrlf=false -c core.safecrlf=false -c core.fsmonitor=false -c gc.auto=0 \
        -c core.hooksPath=/dev/null -c safe.directory='*' -c advice.addEmbeddedRepo=false "$@"
}
# The repository of the agent, if there is one.
own() {
    git --git-dir=.git --work-tree=. -c core.hooksPath=/dev/null -c core.fsmonitor=false \
        -c safe.directory='*' "$@"
}
find_commit() {
    g rev-parse --verify --quiet "$1^{commit}" || :
}
skip() {
    echo "skipped $1"
    exit 0
}
create_repository() {
    mkdir -p "$dir"
    g init --quiet "$PWD" >/dev/null 2>&1
    # The content of files is saved as it is, whatever the attributes of the project say.
    mkdir -p "$GIT_DIR/info"
    echo '* -text -ident -filter -working-tree-encoding' > "$GIT_DIR/info/attributes"
}
# Adds all files, and sets `tree`, `head` (commit of the agent's repository) and `message`.
add_files() {
    if ! added=$(g add --all . 2>&1); then
        skip "git can't read all files: $(echo "$added" | head -n 1)"
    fi
    nested=$(g ls-files --stage | sed -n 's/^160000 [^	]*	//p' | head -n 1)
    [ -z "$nested" ] || skip "the folder $nested is a git repository of its own"
    tree=$(g write-tree)
    head= branch=
    if [ -d .git ]; then
        head=$(own rev-parse --verify --quiet 'HEAD^{commit}' || :)
        branch=$(own symbolic-ref --quiet --short HEAD || :)
    fi
    message="head=$head
branch=$branch"
}
[ -f "$GIT_DIR/HEAD" ] || create_repository
# The agent's repository has the objects that were cloned.
if [ -d .git/objects ]; then
    echo "$PWD/.git/objects" > "$GIT_DIR/objects/info/alternates"
else
    rm -f "$GIT_DIR/objects/info/alternates"
fi
parent=$(g rev-parse --verify --quiet refs/longhaul/start^1 || :)
if [ -n "$parent" ] && ! g cat-file -e "$parent" 2>/dev/null; then
    # The agent has deleted its repository. All files are saved again.
    rm -rf "$GIT_DIR"
    create_repository
fi
# A script that was killed can leave these two.
rm -f "$GIT_DIR/index.lock"
g ls-files >/dev/null 2>&1 || rm -f "$GIT_DIR/index"
"#;

/// Records the files after the clone of a repository, with which the first snapshot is compared.
pub(super) const START: &str = r#"add_files
if [ -n "$head" ]; then set -- -p "$head"; else set --; fi
commit=$(printf '%s\n' "$message" | g commit-tree "$tree" "$@")
g update-ref refs/longhaul/start "$commit"
"#;

/// Commits the files, and writes the pack, the list of changes and the diff to files.
pub(super) const SAVE: &str = r#"count=$(g ls-files --cached --others --exclude-standard | head -n 20001 | wc -l)
if [ "$count" -gt 20000 ]; then
    skip 'the work folder has more than 20,000 files; list build results in .gitignore'
fi
bytes=$(g ls-files -z --modified --others --exclude-standard | xargs -0 stat -c %s -- 2>/dev/null | {
    sum=0
    while read -r size; do sum=$((sum + size)); done
    echo "$sum"
})
if [ "$bytes" -gt 209715200 ]; then
    skip 'the changed files have more than 200 MB; list build results in .gitignore'
fi
add_files
start=$(find_commit refs/longhaul/start)
since=
[ -z "$SINCE" ] || since=$(find_commit "$SINCE")
# The first snapshot of a run in the sandbox of an earlier step of its chain is compared with the
# last one of that step, but contains all objects.
last=$since
[ -n "$last" ] || last=$(find_commit refs/longhaul/last)
[ -n "$last" ] || last=$start
if [ -n "$last" ]; then before=$(g rev-parse "$last^{tree}"); else before=$(g hash-object -w -t tree /dev/null); fi
if [ "$tree" = "$before" ]; then
    if [ -n "$since" ] && [ "$message" = "$(g log -1 --format=%B "$since")" ]; then
        echo unchanged
        exit 0
    fi
fi
set --
[ -z "$last" ] || set -- -p "$last"
[ -z "$head" ] || set -- "$@" -p "$head"
commit=$(printf '%s\n' "$message" | g commit-tree "$tree" "$@")
g update-ref refs/longhaul/last "$commit"
{
    echo "$commit"
    [ -z "$since" ] || echo "^$since"
    [ -z "$start" ] || echo "^$start"
} | g pack-objects --revs --thin --stdout --quiet > "$dir/pack"
g diff-tree -r --no-renames -z --raw --numstat "$before" "$tree" | head -c 8000000 > "$dir/changes"
g diff-tree -r -p --no-color --no-ext-diff --no-textconv "$before" "$tree" | head -c 262144 > "$dir/diff"
[ "$(wc -c < "$dir/diff")" -lt 262144 ] || printf '\n[the diff is longer than 256 KB and cut here]\n' >> "$dir/diff"
echo "commit $commit"
"#;

/// Adds the objects of a pack.
pub(super) const UNPACK: &str = r#"g index-pack --stdin --fix-thin < "$dir/in" > /dev/null
[ ! -d .git ] || own index-pack --stdin --fix-thin < "$dir/in" > /dev/null
rm -f "$dir/in"
"#;

/// Writes the files of a commit.
pub(super) const RESTORE: &str = r#"g read-tree -u --reset "$COMMIT" 2>&1
g update-ref refs/longhaul/last "$COMMIT"
head=$(g log -1 --format=%B "$COMMIT" | sed -n 's/^head=//p')
branch=$(g log -1 --format=%B "$COMMIT" | sed -n 's/^branch=//p')
if [ -d .git ] && [ -n "$head" ]; then
    if [ -n "$branch" ]; then
        own update-ref "refs/heads/$branch" "$head"
        own symbolic-ref HEAD "refs/heads/$branch"
    else
        own update-ref --no-deref HEAD "$head"
    fi
    own reset --quiet
fi
"#;
