/* A Worker for pages that are opened from disk, where browsers refuse real ones: the script runs in a hidden frame. */
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }));
      const address = JSON.stringify(String(new URL(url, location.href))).replace(/</g, "\\u003c");
      this.frame.srcdoc = `<script>
        self.postMessage = (data) => parent.dispatchEvent(new MessageEvent("frame-worker", { data, source: self }));
        self.importScripts = (...urls) => urls.forEach((u) => document.write('<script src="' + u + '"></' + "script>"));
        const script = document.createElement("script");
        script.src = ${address};
        script.async = false;
        document.currentScript.after(script);
      </script>`;
      this.relay = (event) => {
        if (event.source !== this.frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      window.addEventListener("frame-worker", this.relay);
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      window.removeEventListener("frame-worker", this.relay);
      this.frame.remove();
    }
  }
  window.Worker = FrameWorker;
}
