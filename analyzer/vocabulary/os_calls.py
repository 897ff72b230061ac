"""Calls of the operating system in which a thread can wait, as Nsight Systems names them (OS runtime trace)."""

from __future__ import annotations

_WAITS = frozenset(
    (
        *("poll", "ppoll", "select", "pselect", "epoll_wait", "epoll_pwait", "futex"),
        *(
            "sem_wait",
            "sem_timedwait",
            "sem_clockwait",
            "pthread_join",
            "pthread_mutex_lock",
            "pthread_mutex_timedlock",
        ),
        *("pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait"),
        *("pthread_rwlock_rdlock", "pthread_rwlock_wrlock", "waitpid", "wait4", "accept", "accept4", "connect"),
        *(
            "read",
            "pread",
            "pread64",
            "readv",
            "preadv",
            "recv",
            "recvfrom",
            "recvmsg",
            "fread",
            "fgets",
            "open",
            "open64",
        ),
        *(
            "write",
            "pwrite",
            "pwrite64",
            "writev",
            "send",
            "sendto",
            "sendmsg",
            "fwrite",
            "fflush",
            "fsync",
            "fdatasync",
        ),
        *("sleep", "usleep", "nanosleep", "clock_nanosleep"),
    )
)


def is_os_wait(name: str) -> bool:
    return name in _WAITS
