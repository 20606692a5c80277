"""A headless Chromium over its debugging pipe: no driver, no port, no packages beyond Python's own.

Messages are JSON objects that end with a zero byte; the browser reads file descriptor 3 and writes 4
(https://chromedevtools.github.io/devtools-protocol/). It gets a folder of its own and no network."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
LIMIT_SECONDS = 60
# Puts the two descriptors that it is given in place of 3 and 4, then becomes the browser.
START = """import os, sys
reading, writing = map(int, sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])"""


def high(descriptor):
    """The same pipe with a number that is not 3 or 4."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 64)
    os.close(descriptor)
    return copy


def find():
    """The program, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser with one page; `events` are what the page reported since the last load()."""

    def __init__(self, folder):
        self.number, self.events, self.rest = 0, [], b""
        to_read, self.writing = os.pipe()
        self.reading, to_write = os.pipe()
        command = [
            find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
            "--proxy-server=127.0.0.1:9", "--proxy-bypass-list=<-loopback>", f"--user-data-dir={folder}",
            "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        to_read, to_write = high(to_read), high(to_write)
        starter = [sys.executable, "-c", START, str(to_read), str(to_write), *command]
        self.process = subprocess.Popen(
            starter, pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(folder)},
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Its helpers are gone too when it has closed by itself."""
        os.write(self.writing, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.writing)
        os.close(self.reading)

    def receive(self, deadline):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.reading], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.reading, 1 << 16) if ready else b""
            if not piece:
                raise RuntimeError("the browser ended" if ready else f"no answer within {LIMIT_SECONDS} s")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if hasattr(self, "session"):
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def load(self, url, width, height, dark=False, phone=False):
        """Show a page in a window of this size and wait until it is drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + LIMIT_SECONDS
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive(deadline))

    def ask(self, expression):
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def requests(self):
        """Addresses that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def complaints(self):
        """What stands in the console."""
        methods = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [event["params"] for event in self.events if event.get("method") in methods]

    def screenshot(self, whole=True):
        """PNG as base64."""
        return self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
