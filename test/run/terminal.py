"""Runs a command on a terminal of its own, and types the password when sudo asks for it.

    terminal.py PASSWORD COMMAND ARGUMENT...

Prints what the terminal shows, then "password asked for N times", and ends with the command's status.
"""
import os
import pty
import sys

PROMPT = b"[sudo] password for"
password, command = sys.argv[1], sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(command[0], command)

shown, asked = b"", 0
while True:
    try:
        piece = os.read(terminal, 4096)
    except OSError:  # EIO: the terminal is closed
        break
    if not piece:
        break
    shown += piece
    if shown.count(PROMPT) > asked and shown.rstrip().endswith(b":"):
        asked = shown.count(PROMPT)
        os.write(terminal, password.encode() + b"\n")

sys.stdout.write(shown.decode(errors="replace").replace("\r\n", "\n"))
print(f"password asked for {asked} times")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
