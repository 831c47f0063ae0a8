"use strict";
// Keeps four views of one moment in step: sound, time line, frame with its obstacles, scene from above.
// Text from the run goes in as text (textContent), never as markup.
(() => {
  const at = (id) => document.getElementById(id);
  const data = at("data") ? JSON.parse(at("data").textContent) : { frames: [], start: 0 };
  const frames = data.frames;
  const sound = at("sound");
  const line = at("line");
  const duration = Number(line.dataset.duration);
  let shown = -1;

  const svg = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const look = (o) => `line-${o.kind}` + (!o.confirmed ? " tentative" : !o.seen ? " remembered" : "");
  const metres = (o) => `${o.distance.toFixed(1)} m`;
  const short = (text) => text.length > 18 ? `${text.slice(0, 17)}…` : text;
  const name = (o) => o.what !== "obstacle" ? short(o.what) : o.band === "head" ? "head" : ""; // "ground" on a wall misleads
  const words = (o) => `${metres(o)} ${name(o)}`.trim();

  function drawFrame(f) {
    const image = at("image"), overlay = at("overlay"), depth = at("depth");
    at("frame").classList.toggle("none", !f.image);
    at("depthframe").classList.toggle("none", !f.depth);
    for (const [node, source] of [[image, f.image], [depth, f.depth]]) {
      if (source) node.src = source; else node.removeAttribute("src");
    }
    image.alt = `Left camera at ${f.captured.toFixed(2)} s. ${f.says}`;
    depth.alt = f.coverage
      ? `Depth at ${f.captured.toFixed(2)} s; known in ${Math.round(100 * f.coverage.known)} % of the walking corridor.`
      : `Depth at ${f.captured.toFixed(2)} s: none.`;
    overlay.replaceChildren();
    if (!f.size) return;
    const [width, height] = f.size;
    overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const unit = width / 440; // so that marks and words are as large in every picture
    const labels = [];
    overlay.setAttribute("font-size", 15 * unit);
    for (const o of [...f.obstacles].reverse()) { // nearest last, on top
      if (!o.points) continue;
      const points = o.points.map((p) => p.join(",")).join(" ");
      if (o.confirmed) overlay.append(svg("polygon", { points, class: "halo" }));
      overlay.append(svg("polygon", { points, class: look(o) }));
      if (!o.confirmed) continue;
      const x = Math.min(Math.max(o.mark[0], 60 * unit), width - 60 * unit);
      let y = Math.min(Math.max(o.mark[1] - 9 * unit, 18 * unit), height - 8 * unit);
      while (labels.some((l) => Math.abs(l[0] - x) < 110 * unit && Math.abs(l[1] - y) < 17 * unit)) y += 17 * unit;
      labels.push([x, y]);
      overlay.append(svg("circle", { cx: o.mark[0], cy: o.mark[1], r: 4 * unit }));
      overlay.append(svg("text", { x, y, "stroke-width": 4 * unit }, words(o)));
    }
  }

  const place = (bearing, distance) => {
    const b = bearing * Math.PI / 180;
    return [distance * Math.sin(b), -distance * Math.cos(b)];
  };
  function wedge(left, right, radius) {
    const steps = 24, points = ["0,0"];
    for (let i = 0; i <= steps; i++) points.push(place(left + (right - left) * i / steps, radius).join(","));
    return points.join(" ");
  }
  function drawAbove(f) {
    const known = at("known"), things = at("things");
    known.replaceChildren();
    things.replaceChildren();
    if (f.coverage) {
      const { left, right, floor } = f.coverage;
      known.append(svg("polygon", { points: wedge(left, right, 7.5), class: "view" }));
      if (floor > 0) known.append(svg("polygon", { points: wedge(left, right, floor), class: "floor" }));
    }
    at("nose").setAttribute("transform", `rotate(${f.nose})`);
    const labels = [];
    for (const o of [...f.obstacles].reverse()) {
      const [x, y] = place(o.bearing, o.distance);
      const turn = `translate(${x} ${y}) rotate(${o.bearing})`;
      const across = Math.max(2 * o.distance * o.bearing_sd * Math.PI / 180, 0.05);
      things.append(svg("ellipse", { rx: across, ry: Math.max(2 * o.distance_sd, 0.05), transform: turn, class: look(o) }));
      if (o.width !== null) {
        things.append(svg("line", { x1: -o.width / 2, x2: o.width / 2, y1: 0, y2: 0, transform: turn, class: look(o) }));
      }
      things.append(svg("circle", { cx: x, cy: y, r: 0.06, class: look(o) }));
      if (!o.confirmed || o.distance > 6.5) continue;
      const half = 0.075 * words(o).length; // of its width, about
      const middle = Math.min(Math.max(x, half - 4.1), 4.1 - half);
      let up = y - 0.16;
      while (labels.some((l) => Math.abs(l[0] - middle) < l[2] + half && Math.abs(l[1] - up) < 0.28)) up -= 0.28;
      labels.push([middle, up, half]);
      things.append(svg("text", { x: middle, y: up }, words(o)));
    }
  }

  function drawTable(f) {
    const rows = f.obstacles.map((o) => {
      const row = document.createElement("tr");
      const cells = [o.what, `${o.band}, ${o.bottom.toFixed(1)} to ${o.top.toFixed(1)} m`, `${metres(o)} ± ${o.distance_sd.toFixed(1)}`, o.side,
        o.seen ? "in this frame" : `${o.age.toFixed(1)} s ago`, o.confirmed ? "yes" : "not yet"];
      for (const text of cells) {
        const cell = document.createElement("td");
        cell.textContent = text;
        row.append(cell);
      }
      return row;
    });
    at("obstacles").tBodies[0].replaceChildren(...rows);
  }

  function show(index) {
    if (!frames.length || index === shown) return;
    shown = index;
    const f = frames[index];
    drawFrame(f);
    drawAbove(f);
    drawTable(f);
    at("says").textContent = f.says;
    at("slider").value = index;
    const moves = f.walking ? `walking ${f.speed.toFixed(1)} m/s` : "standing";
    at("when").textContent =
      `${index + 1} of ${frames.length} · ${f.t.toFixed(2)} s · ${f.state} · ${moves}${f.alert ? " · alert" : ""}`;
    at("slider").setAttribute("aria-valuetext", `${f.t.toFixed(1)} seconds, ${f.state}. ${f.says}`);
  }

  function moveCursor(t, follow) {
    const share = Math.min(Math.max(t / duration, 0), 1);
    at("cursor").style.left = `${100 * share}%`;
    const scroll = line.parentElement, x = share * line.offsetWidth;
    if (follow && (x < scroll.scrollLeft || x > scroll.scrollLeft + scroll.clientWidth - 120)) {
      scroll.scrollLeft = x - 60;
    }
  }
  const frameAt = (t) => Math.max(0, frames.findLastIndex((f) => f.t <= t + 1e-6));

  function seek(t) {
    if (sound) sound.currentTime = t;
    show(frameAt(t));
    moveCursor(t, true);
  }
  function choose(index) {
    const i = Math.min(Math.max(index, 0), frames.length - 1);
    if (sound) sound.currentTime = frames[i].t;
    show(i);
    moveCursor(frames[i].t, true);
  }

  line.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    const box = line.getBoundingClientRect();
    seek(button ? Number(button.dataset.t) : duration * (event.clientX - box.left) / box.width);
  });
  if (frames.length) {
    at("slider").addEventListener("input", (event) => choose(Number(event.target.value)));
    at("previous").addEventListener("click", () => choose(shown - 1));
    at("next").addEventListener("click", () => choose(shown + 1));
  }
  if (sound) {
    const follow = () => {
      show(frameAt(sound.currentTime));
      moveCursor(sound.currentTime, true);
      if (!sound.paused) requestAnimationFrame(follow);
    };
    sound.addEventListener("play", follow);
    sound.addEventListener("seeked", () => { if (!sound.paused) return; moveCursor(sound.currentTime, false); });
  }
  if (frames.length) {
    show(data.start);
    moveCursor(frames[data.start].t, false);
  }
})();
