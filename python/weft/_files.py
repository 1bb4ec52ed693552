"""The folder in which workers of one machine find each other's weights.

Everything about one set of weights begins with its key: ``KEY.weights`` is what is shared, ``KEY.lock`` is held by
whoever looks for it or makes it, ``KEY.new`` is being made, ``KEY.socket`` leads to its keeper where it lies on a GPU.

Invariants:
1. ``KEY.weights`` counts while a living process has it locked (``flock``, shared), and is discarded otherwise. The
   kernel unlocks what a process held however it ends, so nothing outlives the last user but a file without a lock, and
   nobody reads a file that a machine's crash left half written.
2. Files appear, are looked at and are removed under the lock of ``KEY.lock``.
3. Only files of this user that nobody else may read or write are opened, in a folder of which the same holds. No
   symbolic link is followed.

The node removes what the last worker left (``crates/node/src/weights.rs``, which follows the same rules).
"""

import contextlib
import errno
import fcntl
import os
import stat
import time

#: How often a worker that waits for another looks.
LOOK_S = 0.01


class Unshared(Exception):
    """Why weights cannot be shared. They are loaded for this worker alone then."""


class TookTooLong(Exception):
    """Somebody else has been at them for as long as anybody may wait."""


class Folder:
    """The folder, held by a descriptor: what is renamed above it does not lead elsewhere."""

    def __init__(self, path):
        self.path = path
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        refuse_strangers(path, os.fstat(self.descriptor))

    def close(self):
        """Lets go of the folder; what was opened in it stays open."""
        os.close(self.descriptor)

    def open(self, name, flags):
        """Opens one of our own files."""
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(name, flags, 0o600, dir_fd=self.descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Unshared(f"{self.path}/{name} is a symbolic link") from None
            raise
        try:
            found = os.fstat(file)
            refuse_strangers(f"{self.path}/{name}", found)
            if not stat.S_ISREG(found.st_mode):
                raise Unshared(f"{self.path}/{name} is no file")
        except BaseException:
            os.close(file)
            raise
        return file

    def remove(self, name):
        """Removes a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def rename(self, old, new):
        """Moves a file, over another where there is one."""
        os.rename(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def address(self, name):
        """Where a socket lies, for calls that take a hundred bytes at most."""
        return f"/proc/self/fd/{self.descriptor}/{name}"

    @contextlib.contextmanager
    def locked(self, key, until):
        """Holds the key's lock. Nobody waits for it after ``until``, in seconds of the monotonic clock."""
        name = f"{key}.lock"
        while True:
            file = self.open(name, os.O_RDWR | os.O_CREAT)
            try:
                # Who had the lock before may have removed the file, and then somebody else locks another.
                if try_lock(file, fcntl.LOCK_EX) and self._is_at(name, file):
                    yield
                    return
            finally:
                os.close(file)
            if time.monotonic() >= until:
                raise TookTooLong("another worker has been loading the weights for too long")
            time.sleep(LOOK_S)

    def _is_at(self, name, file):
        try:
            found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(file))

    def find(self, key):
        """Opens and locks weights that somebody holds, or gives None. The key's lock must be held."""
        try:
            file = self.open(f"{key}.weights", os.O_RDONLY)
        except FileNotFoundError:
            return None
        # While anybody holds them they cannot be had alone.
        if try_lock(file, fcntl.LOCK_EX) or not try_lock(file, fcntl.LOCK_SH):
            os.close(file)
            self.discard(key)
            return None
        return file

    def discard(self, key):
        """Removes all but the lock. Who has the weights mapped keeps them. The key's lock must be held."""
        for kind in ("weights", "new", "socket"):
            self.remove(f"{key}.{kind}")

    @contextlib.contextmanager
    def made(self, key):
        """A new file, which are the weights once the block has ended well. The key's lock must be held. The file is
        locked and stays so until it is closed, which is up to the caller where the block ended well."""
        self.discard(key)
        file = self.open(f"{key}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            try_lock(file, fcntl.LOCK_SH)
            yield file
            os.fchmod(file, 0o400)
            self.rename(f"{key}.new", f"{key}.weights")
        except BaseException:
            os.close(file)
            self.remove(f"{key}.new")
            raise


def refuse_strangers(path, found):
    """Raises unless a file or folder is this user's and nobody else's."""
    if found.st_uid != os.geteuid():
        raise Unshared(f"{path} belongs to user {found.st_uid}")
    if found.st_mode & 0o077:
        raise Unshared(f"{path} is open to other users")


def try_lock(file, kind):
    """Locks a file unless somebody is in the way; says whether it did."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
