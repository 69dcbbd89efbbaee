"use strict";
// A figure as files: its data as rows, and its picture.
(function (poolscope) {
  const plain = (label) =>
    String(label)
      .replace(/<[^>]*>/g, "")
      .replaceAll("&lt;", "<")
      .replaceAll("&gt;", ">")
      .replaceAll("&amp;", "&");

  // One row a point: the trace, its panel, and whatever the trace holds for each point.
  function figureRows(figure) {
    const fields = new Map();
    const rows = [];
    const put = (row, name, value) => {
      if (value === undefined) return;
      fields.set(name, true);
      row[name] = typeof value === "string" ? plain(value) : value;
    };
    figure.data.forEach((trace, number) => {
      const axis = figure.layout["yaxis" + (trace.yaxis || "y").slice(1)] || {};
      const base = { trace: plain(trace.name || `trace ${number + 1}`), panel: plain((axis.title || {}).text || "") };
      if (Array.isArray(trace.z)) {
        trace.z.forEach((line, i) =>
          line.forEach((z, j) => {
            const row = { ...base };
            put(row, "x", trace.x ? trace.x[j] : j);
            put(row, "y", trace.y ? trace.y[i] : i);
            put(row, "z", z);
            rows.push(row);
          }),
        );
        return;
      }
      const parts = {
        x: trace.x,
        y: trace.y,
        text: trace.text,
        error: (trace.error_y || {}).array,
        error_minus: (trace.error_y || {}).arrayminus,
      };
      const lists = Object.entries(parts).filter(([, list]) => Array.isArray(list));
      const count = Math.max(0, ...lists.map(([, list]) => list.length));
      for (let k = 0; k < count; k += 1) {
        const row = { ...base };
        for (const [name, list] of lists) put(row, name, list[k]);
        const custom = Array.isArray(trace.customdata) ? trace.customdata[k] : undefined;
        if (Array.isArray(custom)) custom.forEach((value, c) => put(row, `data_${c + 1}`, value));
        else put(row, "data_1", custom);
        rows.push(row);
      }
    });
    const names = ["trace", ...(rows.some((row) => row.panel) ? ["panel"] : []), ...fields.keys()];
    return [names, rows.map((row) => names.map((name) => row[name]))];
  }

  // A picture on white paper, in the size in which the figure was made, with its title.
  async function picture(figure, kind) {
    const layout = {
      ...structuredClone(figure.layout),
      paper_bgcolor: "#ffffff",
      plot_bgcolor: "#ffffff",
      colorway: figure.layout.colorway || poolscope.colorway,
    };
    const size = { width: layout.width || 860, height: layout.height || 480 };
    const url = await Plotly.toImage(
      { data: figure.data, layout },
      { format: kind, scale: kind === "png" ? 2 : 1, ...size },
    );
    const content = url.slice(url.indexOf(",") + 1);
    if (kind === "svg") return decodeURIComponent(content);
    return Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  }

  Object.assign(poolscope, { figureRows, picture });
})(window.poolscope);
