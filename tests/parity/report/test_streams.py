"""Reports to standard output for any kind of stream: a pipe, a file, a socket, none."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from parity.report.records import check_writable, is_stream, write_text

SCRIPT = """
import sys
from pathlib import Path
from parity.report.records import check_writable, write_text
path = Path(sys.argv[1])
check_writable(path)
print("before")
print("also before", file=sys.stderr)
write_text("::error::report\\n", path)
print("after")
"""


def link(folder, descriptor):
    """Returns a link like /dev/stdout or /dev/stderr, which a test may replace."""
    path = folder / f"std{descriptor}"
    path.symlink_to(f"/proc/self/fd/{descriptor}")
    return path


def write(path, **streams):
    subprocess.run([sys.executable, "-c", SCRIPT, str(path)], check=True, **streams)
    assert path.is_symlink()


@pytest.fixture(params=["pipe", "file", "appended", "socket"])
def printed(request, tmp_path):
    """``printed(path, "stdout")`` runs the script and returns all that it wrote to that stream."""

    def pipe(path, name):
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as stream:
            write(path, **{name: stream})
        with os.fdopen(reading, "rb") as stream:
            return stream.read().decode()

    def file(path, name, mode="wb"):
        out = tmp_path / "out.txt"
        with out.open(mode) as stream:
            write(path, **{name: stream})
        return out.read_text()

    def through_socket(path, name):
        left, right = socket.socketpair()
        with left, right:
            write(path, **{name: right})
            right.shutdown(socket.SHUT_WR)
            return left.recv(10_000).decode()

    kinds = {
        "pipe": pipe,
        "file": file,
        "appended": lambda *given: file(*given, "ab"),
        "socket": through_socket,
    }
    return kinds[request.param]


@pytest.mark.long
def test_standard_output_is_written_in_order(printed, tmp_path):
    assert printed(link(tmp_path, 1), "stdout") == "before\n::error::report\nafter\n"


@pytest.mark.long
def test_standard_error_is_written_in_order(printed, tmp_path):
    assert printed(link(tmp_path, 2), "stderr") == "also before\n::error::report\n"


def test_a_named_pipe_is_written_to(tmp_path):
    path, found = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: found.append(path.read_text()))
    reader.start()
    check_writable(path)
    write_text("text", path)
    reader.join()
    assert found == ["text"] and path.is_fifo()


def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "folder" / "report.json")
    check_writable(path)
    write_text("text", path)
    assert path.is_symlink() and (tmp_path / "folder" / "report.json").read_text() == "text"
    assert sorted(one.name for one in (tmp_path / "folder").iterdir()) == ["report.json"]


def test_a_link_into_no_folder_is_said_before(tmp_path):
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "missing" / "report.json")
    with pytest.raises(ValueError, match=r"folder .*missing does not exist"):
        check_writable(path)


def test_a_file_is_no_stream(tmp_path):
    assert not is_stream(tmp_path / "report.json")
    (tmp_path / "there").touch()
    assert not is_stream(tmp_path / "there")
