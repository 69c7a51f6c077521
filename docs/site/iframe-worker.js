// A worker in a hidden frame: the search asks for a worker, and a page that is read as a file gets none.
// mkdocs-material's plugin for such pages would load one like it from elsewhere, if none had this name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const page = this.inside.document;
      page.open();  // or a browser may put another empty page in its place, later
      page.write("<body></body>");
      page.close();
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      const script = page.createElement("script");
      script.src = url;
      this.loaded = new Promise((resolve) => script.addEventListener("load", resolve));
      page.body.append(script);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", {data: copy})));
    }
  };
}
