"""How many bytes of files are in holes: a program that is sent, as text, to any Python from 3.6 on.

It takes a folder, and on its input the names of files there, each with a zero byte after it. Blocks that are
allocated do not say so: a file system that compresses has fewer of them for every file.
"""

import errno
import os
import sys


def holes(name: bytes) -> int:
    """Bytes of a file that are in holes; 0 where its file system does not say."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return 0
    size, data, end = os.fstat(file).st_size, 0, 0
    try:
        while end < size:
            begin = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, begin, os.SEEK_HOLE)
            data += end - begin
    except OSError as error:
        if error.errno != errno.ENXIO:  # which means: nothing but a hole up to the end
            return 0
    finally:
        os.close(file)
    return size - data


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    sys.stdout.write(str(sum(map(holes, sys.stdin.buffer.read().split(b"\0")[:-1]))))
