"""Makes every Python process whose PYTHONPATH names this folder look to the code of the project as one on Windows.

The code of the project (and no library) gets modules `os`, `signal`, ... without names that the documentation calls
"Unix only", and cannot import modules that Windows lacks. For all code, files follow the rules of Windows
where those are stricter: no open or mapped file is renamed or deleted, no rename replaces what is there, no folder is
opened, text files end their lines with CR LF. A lock of filelock covers the first byte of a file, which no other
process could read: it must be that of a file that is there to be locked.

Sources: the documentation of Python 3.13, sections os, signal, select, socket, multiprocessing, "Availability".
"""

import builtins
import fcntl
import io
import os
import re
import stat
import sys
import types
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

OURS = ("distill", "filters", "student", "teacher")
MODULES = {"fcntl", "resource", "termios", "pwd", "grp", "tty", "pty", "posix", "syslog", "crypt", "nis", "readline"}
OS = re.compile(
    r"""fork|forkpty|register_at_fork|(get|set)(e|re|res)?[ug]id|getgroups|setgroups|getgrouplist|initgroups|[gs]etpgid
    |[gs]etpgrp|[gs]etpriority|PRIO_\w+|getsid|setsid|killpg|nice|uname|ctermid|getloadavg|sysconf\w*|confstr\w*|f?pathconf\w*
    |[fl]?chown|lchmod|fchmod|fchdir|chroot|mkfifo|mknod|major|minor|makedev|[pr]+eadv?|p?writev?(?<!write)|pwrite|RWF_\w+
    |posix_\w+|POSIX_\w+|sendfile|copy_file_range|splice|eventfd\w*|EFD_\w+|memfd_create|MFD_\w+|getrandom|GRND_\w+
    |sched_\w+|SCHED_\w+|sync|fdatasync|f?statvfs|ST_\w+|ttyname|openpty|login_tty|tcgetpgrp|tcsetpgrp|lockf|F_\w+|pipe2
    |wait|wait3|wait4|waitid|W[A-Z]+|P_(PID|PGID|ALL|PIDFD)|CLD_\w+|pidfd_open|[gs]et_blocking|environb|getenvb
    |\w+xattr|XATTR_\w+|fwalk|EX_(?!OK)\w+|O_(NONBLOCK|DIRECTORY|CLOEXEC|NOFOLLOW|D?SYNC|RSYNC|NOCTTY|ASYNC|DIRECT|NOATIME|PATH
    |TMPFILE|NDELAY|LARGEFILE|ACCMODE|FSYNC)|setns|unshare|CLONE_\w+|SEEK_(DATA|HOLE)|RTLD_\w+|NGROUPS_MAX|TMP_MAX""",
    re.VERBOSE,
)
SIGNAL = re.compile(
    r"""SIG(?!ABRT$|FPE$|ILL$|INT$|SEGV$|TERM$|_DFL$|_IGN$)[A-Z_0-9]+|alarm|[gs]etitimer|ITIMER_\w+|ItimerError|pause
    |pthread_\w+|sig(pending|wait|waitinfo|timedwait|interrupt)|pidfd_send_signal""",
    re.VERBOSE,
)


class _Reduced(types.ModuleType):
    """A module without some names, and with some of its own."""

    def __init__(self, module: types.ModuleType, absent: re.Pattern[str] | None, **own: Any) -> None:
        self.__dict__.update(_module=module, _absent=absent, _own=own)

    def __getattr__(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]
        if self._absent is not None and self._absent.fullmatch(name):
            raise AttributeError(f"module {self._module.__name__!r} of Windows has no attribute {name!r}")
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)


def _resolved(path: Any, folder: int | None) -> str:
    text = os.fsdecode(path)
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}") if folder is not None else os.getcwd(), text)


def _refuse_open(path: Any, folder: int | None = None) -> None:
    """Raise as Windows does where this process has a file, or a file of a folder, open or mapped."""
    name = os.path.realpath(_resolved(path, folder))
    if not os.path.exists(name):
        return
    taken = [line.split(maxsplit=5)[5].strip() for line in _lines("/proc/self/maps") if "/" in line]
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            taken.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    # An open folder is the way in which Linux deletes; Windows has no such thing.
    if any(each == name or each.startswith(f"{name}/") for each in taken if not os.path.isdir(each)):
        raise PermissionError(13, "another handle of this process is open (simulated Windows)", name)


def _lines(path: str) -> list[str]:
    with _open(path, encoding="utf-8", errors="replace") as file:
        return file.readlines()


def _renaming(rename: Callable[..., None], replaces: bool) -> Callable[..., None]:
    def renamed(old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        _refuse_open(old, src_dir_fd)
        if os.path.exists(new):
            if not replaces or os.path.isdir(new):
                raise FileExistsError(17, "the file exists (simulated Windows)", os.fsdecode(new))
            _refuse_open(new, dst_dir_fd)
        rename(old, new)

    return renamed


def _deleting(delete: Callable[..., None]) -> Callable[..., None]:
    def deleted(path: Any, *, dir_fd: int | None = None) -> None:
        _refuse_open(path, dir_fd)
        delete(path, dir_fd=dir_fd)

    return deleted


_open = io.open


def _opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
    if "b" not in mode:
        asking = sys._getframe(1).f_globals.get("__name__", "")
        named = len(arguments) > 1 or "encoding" in options or asking.split(".")[0] not in OURS
        assert named, f"no encoding: {asking}"
        if set(mode) & set("wax") and len(arguments) < 3 and options.get("newline") is None:
            options["newline"] = "\r\n"
    return _open(file, mode, *arguments, **options)


def _open_descriptor(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
    if os.path.isdir(path):
        raise PermissionError(13, "Windows opens no folder", str(path))
    if flags & os.O_CREAT and not flags & 0x10000000:
        raise AssertionError("O_BINARY is missing: Windows would change line ends")
    return os.open(path, flags & ~0x10000000, *arguments, **options)


def _fsync(descriptor: int) -> None:
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(9, "Windows flushes no file that is open for reading only")
    os.fsync(descriptor)


def _select(*lists: Any) -> Any:
    import select

    for each in (item for items in lists[:3] for item in items):
        if not stat.S_ISSOCK(os.fstat(each if isinstance(each, int) else each.fileno()).st_mode):
            raise OSError(10038, "select() of Windows takes sockets only")
    return select.select(*lists)


def _get_context(method: str | None = None) -> Any:
    import multiprocessing

    if method not in (None, "spawn"):
        raise ValueError(f"cannot find context for {method!r} on Windows")
    return multiprocessing.get_context("spawn")


def _lock_descriptor(lock: Callable[..., Any], descriptor: int, **options: Any) -> Any:
    name = os.readlink(f"/proc/self/fd/{descriptor}")
    assert name.endswith(".lock"), f"{name}: Windows would let no other process read this file"
    return lock(descriptor, **options)


def _reduce(module: types.ModuleType) -> types.ModuleType:
    match module.__name__:
        case "os":
            return _Reduced(module, OS, name="nt", O_BINARY=0x10000000, open=_open_descriptor, fsync=_fsync)
        case "sys":
            return _Reduced(module, None, platform="win32")
        case "signal":
            return _Reduced(module, SIGNAL)
        case "select":
            return _Reduced(module, re.compile(r"e?poll|EPOLL\w*|POLL\w*|PIPE_BUF"), select=_select)
        case "socket":
            return _Reduced(module, re.compile(r"AF_UNIX|AF_NETLINK|SO_REUSEPORT|socketpair_\w+|send_fds|recv_fds"))
        case "multiprocessing":
            methods = {"get_all_start_methods": lambda: ["spawn"], "get_context": _get_context}
            return _Reduced(module, re.compile("forkserver|popen_fork|resource_tracker"), **methods)
        case "filelock":
            return _Reduced(module, None, lock_descriptor=partial(_lock_descriptor, module.lock_descriptor))
    return module


_import = builtins.__import__


def _imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    asking = (globals or {}).get("__name__", "")
    if asking == "__main__":
        asking = ((globals or {}).get("__package__") or "") + "."
    if asking.split(".")[0] not in OURS:
        return _import(name, globals, locals, fromlist, level)
    if name.split(".")[0] in MODULES:
        raise ModuleNotFoundError(f"Windows has no module {name!r} (asked for by {asking})", name=name)
    return _reduce(_import(name, globals, locals, fromlist, level))


os.rename, os.replace = _renaming(os.rename, False), _renaming(os.replace, True)
os.unlink = os.remove = _deleting(os.unlink)
os.rmdir = _deleting(os.rmdir)
builtins.open = io.open = _opened
builtins.__import__ = _imported
warnings.filterwarnings("error", category=EncodingWarning, module=rf"({'|'.join(OURS)})\b.*")
