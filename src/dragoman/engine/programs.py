"""Tables for `commands`: known programs that run other programs, with the options and variables by which they do so.

`commands` assumes that a program missing here runs no other program.
"""

import re

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash"))
# Programs that run the words after them, or a script among these words.
WRAPPERS = frozenset((
    "sudo", "doas", "su", "runuser", "env", "nohup", "exec", "command", "builtin", "time", "nice", "ionice", "chrt", "taskset",
    "setsid", "setpriv", "xargs", "parallel", "timeout", "stdbuf", "unbuffer", "chroot", "unshare", "nsenter", "flock", "watch",
    "script", "strace", "ltrace", "valgrind", "fakeroot", "bwrap", "firejail", "systemd-run", "systemd-inhibit", "busybox",
    "toybox", "coproc", "find", "fd", "entr", "xvfb-run", "dbus-run-session", "split", "at", "batch", "start-stop-daemon",
    "run-parts", "capsh", "linux32", "linux64", "setarch", "i386", "x86_64", "pkexec", "torsocks", "proxychains", "rlwrap",
    "catchsegv", "faketime", "eatmydata", "ssh-agent", "gdb", "perf", "prlimit", "numactl", "cgexec", "newgrp", "sg",
))  # fmt: skip
# Programs that run a command for each file that they find: the words before the command.
SEARCHING = {
    "find": ("-exec", "-execdir", "-ok", "-okdir"),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
}
# Builtins that run a text as a script, and builtins that may precede another builtin.
EVALUATING = frozenset(("eval", "trap", ".", "source"))
BUILTIN_WRAPPERS = frozenset(("command", "builtin", "time", "coproc"))
REPLACES = re.compile(r"-[A-Za-z]*[iIJ]|--replace|--max-replace")
# Programs that run code in a language of their own, which may run another program.
INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|php|lua|node|tclsh|wish|expect|julia|guile|pwsh|osascript|gawk|mawk|nawk|awk)[\d.]*"
    r"|nodejs|deno|bun|luajit|R|Rscript|ghci|runghc|scala|groovy|jshell|m4|ed|ex|vi|vim|nvim|view|emacs|nano|dc|crontab|screen|tmux"
    r"|sqlite3|psql|mysql|socat|nc|ncat|less|more|man|ipython[\d.]*|cscript|irb|erl|elixir|iex|swift|ocaml|racket|sbcl|clisp"
)


def _options(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


# Options that name something for the program to run.
RUNNING_OPTIONS = {
    "git": _options(r"--exec.*|-x.*|--upload-pack.*|--receive-pack.*|--extcmd.*|run|foreach|filter-branch|ext::.*"
                      r"|-O.*|--open-files-in-pager.*|(?i:alias|core|diff|merge|filter|pager|credential|sequence|gpg|difftool"
                      r"|mergetool|include\w*|remote|url|protocol|uploadpack|browser|man|web|hook)\..*"),
    "tar": _options(r"--to-command.*|--checkpoint-action.*|-I.*|--use-compress-program.*|-F.*|--info-script.*|--new-volume.*"
                      r"|--rsh-command.*|--rmt-command.*|-[A-Za-z]*[IF]"),
    "rsync": _options(r"-[A-Za-z]*e.*|--rsh.*|--rsync-path.*"),
    "sort": _options(r"--compress-program.*"),
    "zip": _options(r"-T.*|--unzip-command.*"),
    "ssh": _options(r"-o.*|-F.*"),
    "scp": _options(r"-o.*|-S.*|-F.*"),
    "curl": _options(r"-K.*|--config.*"),
    "sed": _options(
        r"(?:.*[;{}\n\d$/,!~ ])?e(?:[ ;}\n].*)?|[^-].*[^\w\s\\][gpiImMw\d]*e[gpiImMw\d]*(?:[;}\s].*)?|-f.*|--file.*|-[a-z]*f"
    ),
}  # fmt: skip
GIT_SETS = re.compile(r"-c|-C|--config-env|--exec-path=")
# Builtins that give a name another meaning, evaluate text, or run a command later.
HIDING_BUILTINS = frozenset((
    "alias", "hash", "enable", "bind", "complete", "compgen", "compopt", "fc", "history", "let", "mapfile", "readarray",
))  # fmt: skip
NAMING_BUILTINS = frozenset((
    "declare", "typeset", "local", "export", "readonly", "read", "unset", "printf", "test", "[", "getopts", "wait", "set",
))  # fmt: skip
# Variables that make a shell or a program run something, or find another program under a name.
RUNNING_VARIABLES = re.compile(
    r"PATH|LD_\w+|DYLD_\w+|BASH\w*|ENV|PS[0-4]|IFS|SHELLOPTS|PROMPT_COMMAND|SHELL|HOME|CDPATH|\w*PAGER|\w*EDITOR|VISUAL|BROWSER|GIT_\w+"
    r"|LESS\w*|MAN\w*|PYTHON\w*|PERL\w*|RUBY\w*|NODE_\w+|\w*_COMMAND|\w*_OPTIONS|\w*FLAGS|SSH_ASKPASS|SUDO_\w+|RSYNC_\w+|TAR_\w+|EXINIT"
)
SYSTEM_FOLDERS = frozenset((
    "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin",
))  # fmt: skip
