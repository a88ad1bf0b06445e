//! The script that kills commands in a container.

/// Kills processes in a container: `command MARK` those of one command, `before EPOCH` those of all
/// commands of earlier claims. Exits with 1 if some are left. Uses no program, because the container
/// may not be able to start another process.
///
/// A process belongs to the command whose mark is in its environment, or in that of its nearest
/// ancestor with a mark. A process without both has left its command and is killed too.
pub(super) const KILL_SCRIPT: &str = r#"
# Without this check the script would kill processes of the machine, if it ran outside of a
# container of ours.
slurp() {
  text=
  while IFS= read -r line || [ -n "$line" ]; do text=$text$line; done 2>/dev/null <"$1"
}
slurp /proc/1/environ
case $text in
  *'LONGHAUL_EXEC=init;'*) ;;
  *) echo 'the first process is not the one of a sandbox' >&2 && exit 2 ;;
esac

find_owner() {
  process=$1 owner=
  while [ -z "$owner" ]; do
    slurp "/proc/$process/environ"
    case $text in
      *LONGHAUL_EXEC=*\;*)
        owner=${text#*LONGHAUL_EXEC=} owner=${owner%%;*}
        return
        ;;
    esac
    # The state and the parent follow the name, which may contain anything.
    slurp "/proc/$process/stat"
    set -- ${text##*) }
    case ${1:-gone},${2:-0} in
      # A process from outside of the container is still about to become a command.
      gone,* | Z,* | X,* | *,0) owner=init ;;
      *,1) owner=nobody ;;
      *) process=$2 ;;
    esac
  done
}

round=0
while [ "$round" -lt 5 ]; do
  round=$((round + 1)) found=
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    [ "$pid" = 1 ] && continue
    find_owner "$pid"
    case $1,$owner in
      *,init) continue ;;
      *,nobody) ;;
      command,*) [ "$owner" = "$2" ] || continue ;;
      *) [ "${owner%%.*}" -ge "$2" ] 2>/dev/null && continue ;;
    esac
    # Stopped processes start no others until all of them have been found.
    kill -STOP "$pid" 2>/dev/null
    found="$found $pid"
  done
  [ -z "$found" ] && exit 0
  kill -KILL $found 2>/dev/null
done
exit 1
"#;
