"use strict";
(() => {
const $ = id => document.getElementById(id);
const D = JSON.parse($("data").textContent);
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const places = new Uint16Array(bytes(D.places).buffer), cluster = bytes(D.cluster);
const near = new Uint16Array(bytes(D.near).buffer), sizes = bytes(D.sizes);
const label = D.label && new Int16Array(bytes(D.label).buffer);
const value = D.value && new Float32Array(bytes(D.value).buffer);
const count = D.count, pictured = D.names.length, side = D.side, columns = D.columns, dense = count > pictured;
const tiny = side <= 32, dark = matchMedia("(prefers-color-scheme: dark)");
const number = n => n.toLocaleString("en");

// ---- colours: twelve that are told apart in both schemes, then hues as far apart as they go
const HUES = [[216, 62, 50], [28, 90, 46], [148, 55, 36], [350, 65, 52], [268, 50, 56], [186, 75, 36],
              [52, 85, 38], [318, 50, 52], [96, 50, 36], [14, 40, 40], [240, 20, 55], [200, 30, 42]];
const hue = i => {
  const [h, s, l] = i < HUES.length ? HUES[i] : [(i * 137.5) % 360, 50 + (i % 3) * 12, 38 + (i % 2) * 14];
  return `hsl(${h} ${s}% ${dark.matches ? l + 18 : l}%)`;
};
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const ramp = x => {
  const at = Math.min(3.999, Math.max(0, x * 4)), i = Math.floor(at), f = at - i;
  return `rgb(${RAMP[i].map((c, j) => Math.round(c + f * (RAMP[i + 1][j] - c))).join(" ")})`;
};
let low = 0, high = 1;
if (value) {
  const sorted = value.filter(v => !Number.isNaN(v)).sort();
  low = sorted[Math.floor(sorted.length * .01)]; high = sorted[Math.ceil(sorted.length * .99) - 1];
}
let mode = $("colour").value, only = -2;  // -2: everything; -1: what has no label
const kindOf = i => mode === "cluster" ? cluster[i] : mode === "none" ? 0 : value ? (Number.isNaN(value[i]) ? -1 : 0) : label[i];
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourOf = i => {
  const kind = kindOf(i);
  if (mode === "none" || kind < 0) return css("--muted");
  return mode === "label" && value ? ramp((value[i] - low) / (high - low || 1)) : hue(kind);
};
let colours = [];
const recolour = () => {
  const known = new Map();
  colours = Array.from({length: count}, (_, i) => {
    if (mode === "label" && value) return colourOf(i);
    const kind = kindOf(i);
    if (!known.has(kind)) known.set(kind, colourOf(i));
    return known.get(kind);
  });
};

// ---- pictures lie on sheets
const sheets = D.sheets.map(text => {
  const image = new Image(), url = URL.createObjectURL(new Blob([bytes(text)], {type: "image/webp"}));
  image.onload = () => draw();
  image.src = url;
  return {image, url};
});
const linesOf = s => Math.ceil(Math.min(columns * columns, pictured - s * columns * columns) / columns);
const cell = i => {
  const s = Math.floor(i / (columns * columns)), j = i % (columns * columns);
  return {s, x: (j % columns) * side, y: Math.floor(j / columns) * side, w: sizes[2 * i], h: sizes[2 * i + 1]};
};
const thumb = (i, tag = "button") => {
  const {s, x, y, w, h} = cell(i), made = document.createElement(tag), inside = document.createElement("span");
  const wide = w >= h ? 100 : 100 * w / h, W = columns * side, H = linesOf(s) * side;
  made.className = "t" + (tiny ? " tiny" : "") + (i === chosen ? " on" : "");
  if (w) Object.assign(inside.style, {
    width: `${wide}%`, aspectRatio: `${w} / ${h}`, backgroundImage: `url(${sheets[s].url})`,
    backgroundSize: `${100 * W / w}% ${100 * H / h}%`,
    backgroundPosition: `${100 * x / Math.max(1, W - w)}% ${100 * y / Math.max(1, H - h)}%`,
  });
  made.append(inside);
  if (tag === "button") {
    made.setAttribute("aria-label", described(i));
    made.title = described(i);
    made.dataset.i = i;
    made.onclick = () => choose(i, true);
  }
  return made;
};
const labelOf = i => D.kind ? D.texts[i] || "no label" : "";
const described = i => D.names[i] + (D.kind ? ` (${labelOf(i)})` : "");

// ---- the map
const canvas = $("map"), pen = canvas.getContext("2d");
let W = 0, H = 0, ratio = 1, fit = 1, scale = 1, dx = 0, dy = 0, drawn = [], chosen = -1, asked = false;
const X = i => places[2 * i] / 65535 * scale + dx, Y = i => places[2 * i + 1] / 65535 * scale + dy;
let left = 1, right = 0, above = 1, below = 0;
for (let i = 0; i < count; i++) {
  const x = places[2 * i] / 65535, y = places[2 * i + 1] / 65535;
  left = Math.min(left, x); right = Math.max(right, x); above = Math.min(above, y); below = Math.max(below, y);
}
const fitting = () => Math.max(50, Math.min((W * .93 - 24) / Math.max(.05, right - left), (H * .93 - 24) / Math.max(.05, below - above)));
const whole = () => { scale = fit = fitting(); dx = (W - (left + right) * scale) / 2; dy = (H - (above + below) * scale) / 2; draw(); };
const zoom = (by, x = W / 2, y = H / 2) => {
  const to = Math.min(fit * 60, Math.max(fit * .7, scale * by)); by = to / scale;
  dx = x - (x - dx) * by; dy = y - (y - dy) * by; scale = to; draw();
};
const within = () => {  // the map may not be lost
  dx = Math.min(W * .7, Math.max(W * .3 - scale, dx)); dy = Math.min(H * .7, Math.max(H * .3 - scale, dy));
};
const draw = () => { if (!asked) { asked = true; requestAnimationFrame(paint); } };
const shows = i => only === -2 || kindOf(i) === only;
const paint = () => {
  asked = false;
  if (!W) return;
  within();
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, W, H);
  if (dense) density(); else for (let i = 0; i < count; i++) if (!shows(i)) dot(i, 1.5, .18);
  drawn = $("pictures").checked ? placed() : [];
  const taken = new Set(drawn.map(d => d[0]));
  for (let i = 0; i < (dense ? 0 : count); i++) if (shows(i) && !taken.has(i)) dot(i, 2.6, .9);
  if (dense && !$("pictures").checked) for (let i = 0; i < pictured; i++) if (shows(i)) dot(i, 2.2, .9);
  pen.globalAlpha = 1;
  pen.imageSmoothingEnabled = !tiny; pen.imageSmoothingQuality = "high";
  for (const [i, x, y, w, h] of drawn) picture(i, x, y, w, h, mode === "none" ? 0 : 2);
  if (chosen >= 0) relations();
};
const dot = (i, r, alpha) => {
  const x = X(i), y = Y(i);
  if (x < -5 || y < -5 || x > W + 5 || y > H + 5) return;
  pen.globalAlpha = alpha; pen.fillStyle = colours[i];
  pen.beginPath(); pen.arc(x, y, r, 0, 7); pen.fill();
};
const picture = (i, x, y, w, h, border, ink = colours[i]) => {
  const c = cell(i), image = sheets[c.s].image;
  if (border) { pen.fillStyle = ink; pen.fillRect(x - border, y - border, w + 2 * border, h + 2 * border); }
  if (image.complete && c.w) pen.drawImage(image, c.x, c.y, c.w, c.h, x, y, w, h);
};
const big = () => Math.min(112, Math.max(24, Math.sqrt(W * H) / 36) * Math.pow(scale / fit, .42));
const placed = () => {  // one after another, none on top of another; the order is always the same, so none jumps
  const s = big(), cells = new Map(), found = [];
  for (const i of ranked) {
    if (!shows(i)) continue;
    const x = X(i), y = Y(i);
    if (x < -s || y < -s || x > W + s || y > H + s) continue;
    const a = Math.floor(x / s), b = Math.floor(y / s);
    let free = true;
    for (let p = a - 1; free && p <= a + 1; p++) for (let q = b - 1; free && q <= b + 1; q++) {
      const other = cells.get(p * 4099 + q);
      if (other && Math.abs(other[0] - x) < s + 4 && Math.abs(other[1] - y) < s + 4) free = false;
    }
    if (!free) continue;
    cells.set(a * 4099 + b, [x, y]);
    const c = cell(i), most = Math.max(c.w, c.h, 1), w = s * c.w / most, h = s * c.h / most;
    found.push([i, x - w / 2, y - h / 2, w, h]);
  }
  return found;
};
const ranked = Array.from({length: pictured}, (_, i) => i).sort((a, b) => (a * 2654435761 >>> 0) - (b * 2654435761 >>> 0));
const density = () => {  // all images in cells of a few pixels: colour by what most of them are, strength by how many
  const step = 4, across = Math.ceil(W / step), cells = new Map();
  for (let i = 0; i < count; i++) {
    if (!shows(i)) continue;
    const x = X(i), y = Y(i);
    if (x < 0 || y < 0 || x >= W || y >= H) continue;
    const key = Math.floor(y / step) * across + Math.floor(x / step);
    let held = cells.get(key);
    if (!held) cells.set(key, held = {all: 0, by: new Map()});
    held.all++; held.by.set(colours[i], (held.by.get(colours[i]) || 0) + 1);
  }
  const most = Math.log1p(Math.max(4, ...[...cells.values()].map(c => c.all)));
  for (const [key, held] of cells) {
    let best = 0, ink = "";
    for (const [c, n] of held.by) if (n > best) { best = n; ink = c; }
    pen.globalAlpha = .22 + .68 * Math.log1p(held.all) / most; pen.fillStyle = ink;
    pen.fillRect(key % across * step, Math.floor(key / across) * step, step, step);
  }
};
const relations = () => {
  const s = big() * 1.15, ink = css("--ink"), around = neighbours(chosen);
  pen.strokeStyle = ink; pen.lineWidth = 1; pen.globalAlpha = .55;
  for (const j of around) { pen.beginPath(); pen.moveTo(X(chosen), Y(chosen)); pen.lineTo(X(j), Y(j)); pen.stroke(); }
  pen.globalAlpha = 1;
  const show = (i, size, border) => {
    const c = cell(i), most = Math.max(c.w, c.h, 1), w = size * c.w / most, h = size * c.h / most;
    picture(i, X(i) - w / 2, Y(i) - h / 2, w, h, border, border > 2 ? ink : colours[i]);
    drawn.push([i, X(i) - w / 2, Y(i) - h / 2, w, h]);
  };
  for (const j of [...around].reverse()) show(j, s * .8, 2);
  show(chosen, s * 1.5, 3);
};
const neighbours = i => near.subarray(i * D.neighbours, (i + 1) * D.neighbours);
const under = (x, y) => {
  for (let k = drawn.length - 1; k >= 0; k--) {
    const [i, a, b, w, h] = drawn[k];
    if (x >= a - 2 && x <= a + w + 2 && y >= b - 2 && y <= b + h + 2) return i;
  }
  let best = -1, least = 100;
  for (let i = 0; i < pictured; i++) {
    const away = (X(i) - x) ** 2 + (Y(i) - y) ** 2;
    if (away < least && shows(i)) { least = away; best = i; }
  }
  return best;
};

// ---- fingers and mouse
const fingers = new Map();
let moved = false, apart = 0;
const at = e => { const box = canvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
canvas.onpointerdown = e => { canvas.setPointerCapture(e.pointerId); fingers.set(e.pointerId, at(e)); moved = fingers.size > 1; apart = 0; };
canvas.onpointermove = e => {
  const [x, y] = at(e), before = fingers.get(e.pointerId);
  if (!before) return hover(x, y, e.pointerType);
  $("tip").hidden = true;
  if (fingers.size === 1) {
    if (!moved && Math.hypot(x - before[0], y - before[1]) < 5) return;
    moved = true; canvas.classList.add("drag");
    dx += x - before[0]; dy += y - before[1]; draw();
  }
  fingers.set(e.pointerId, [x, y]);
  if (fingers.size === 2) {
    const [[a, b], [c, d]] = [...fingers.values()], now = Math.hypot(a - c, b - d);
    if (apart) zoom(now / apart, (a + c) / 2, (b + d) / 2);
    apart = now;
  }
};
canvas.onpointerup = canvas.onpointercancel = e => {
  const known = fingers.delete(e.pointerId);
  canvas.classList.remove("drag"); apart = 0;
  if (known && !moved && e.type === "pointerup") choose(under(...at(e)), false);
};
canvas.onpointerleave = () => { $("tip").hidden = true; };
canvas.addEventListener("wheel", e => { e.preventDefault(); zoom(Math.exp(-e.deltaY * (e.deltaMode ? .05 : .0016)), ...at(e)); }, {passive: false});
canvas.onkeydown = e => {
  const step = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]}[e.key];
  if (step) { dx += step[0]; dy += step[1]; draw(); e.preventDefault(); }
  if (e.key === "+" || e.key === "=") zoom(1.3);
  if (e.key === "-") zoom(1 / 1.3);
  if (e.key === "0") whole();
};
addEventListener("keydown", e => { if (e.key === "Escape") choose(-1); });
const hover = (x, y, kind) => {
  const i = kind === "touch" ? -1 : under(x, y), tip = $("tip");
  canvas.classList.toggle("hit", i >= 0);
  tip.hidden = i < 0;
  if (i < 0) return;
  tip.textContent = described(i);
  tip.style.left = `${Math.min(x + 14, W - tip.offsetWidth - 8)}px`;
  tip.style.top = `${canvas.offsetTop + Math.max(0, y > H - 70 ? y - tip.offsetHeight - 10 : y + 16)}px`;
};

// ---- beside the map
const make = (tag, text, name) => { const e = document.createElement(tag); if (text) e.textContent = text; if (name) e.className = name; return e; };
const grid = (images, wide, under) => {
  const found = make("div", "", wide ? "grid wide" : "grid");
  images.forEach((i, n) => {
    if (!under) return found.append(thumb(i));
    const item = make("div", "", "item");
    item.append(thumb(i), under(i, n)); found.append(item);
  });
  return found;
};
const choose = (i, move) => {
  chosen = i < 0 || i === chosen && !move ? -1 : i;
  const box = $("chosen");
  box.textContent = "";
  document.querySelectorAll(".t.on").forEach(e => e.classList.remove("on"));
  if (chosen >= 0) {
    document.querySelectorAll(`.t[data-i="${i}"]`).forEach(e => e.classList.add("on"));
    const card = make("div", "", "card"), acts = make("div", "", "acts"), words = make("p"), name = D.names[i];
    const cut = name.lastIndexOf("/") + 1;
    words.append(...(D.kind ? [make("b", labelOf(i)), " · "] : []), `cluster ${cluster[i] + 1}`);
    if (cut) words.append(make("br"), `in ${name.slice(0, cut - 1)}`);
    const go = make("button", "Show on map"), close = make("button", "Close");
    go.onclick = () => { centre(i); canvas.scrollIntoView({block: "nearest"}); };
    close.onclick = () => choose(-1);
    acts.append(go, close);
    card.append(thumb(i, "div"), make("h2", name.slice(cut)), words, acts);
    const around = [...neighbours(i)], head = make("h3", "Nearest neighbours ");
    if (label && D.kind === "class" && label[i] >= 0) {
      const same = around.filter(j => label[j] === label[i]).length;
      head.append(make("small", `${same} of ${around.length} have its label`));
    }
    if (dense) head.append(make("small", `${head.children.length ? ";" : ""} among ${number(pictured)} pictures`));
    box.append(card, head, grid(around));
    if (move) { const x = X(i), y = Y(i); if (x < 20 || y < 20 || x > W - 20 || y > H - 20) centre(i); }
    document.querySelector("aside").scrollTop = 0;
    if (move && innerWidth <= 896) box.scrollIntoView({block: "nearest"});
  }
  draw();
};
const centre = i => { dx += W / 2 - X(i); dy += H / 2 - Y(i); if (scale < fit * 3) zoom(fit * 3 / scale); draw(); };
const group = (title, images, more) => {
  const box = make("div", "", "group"), head = make("h3", title);
  if (more) head.append(...more);
  box.append(head, grid(images));
  return box;
};
for (const c of D.copies) {
  const what = (c.exact ? "Same pixels" : c.distance < .1 ? "Nearly the same" : "Much alike") + (c.change ? ", " + c.change : "");
  const folders = c.of > c.images.length ? `${number(c.of)} images, ${c.images.length} shown` : `${c.of} images`;
  const kinds = D.kind ? new Set(c.images.map(labelOf)) : new Set();
  $("copies").append(group(what, c.images, [make("small", folders + (kinds.size > 1 ? ", different labels" : ""))]));
}
const times = n => make("p", `${n.toFixed(1)} \u00d7`);
$("outliers").append(grid(D.outliers.map(o => o[0]), true, (i, n) => times(D.outliers[n][1])));
if ($("contradicted")) $("contradicted").append(grid(D.contradicted.map(o => o[0]), true, (i, n) => {
  const [, own, other, votes, of] = D.contradicted[n], words = make("p");
  words.append(make("b", D.labels[own]), `; ${votes} of ${of} neighbours ${D.labels[other]}`);
  return words;
}));
D.clusters.forEach((c, k) => {
  const dotted = make("i"), alone = make("button", "show");
  dotted.style.background = hue(k);
  alone.onclick = () => { $("colour").value = mode = "cluster"; only = only === k ? -2 : k; refresh(); };
  const words = [`${number(c.size)} images`];
  if (label && D.kind === "class") {
    const held = new Map(); let known = 0;
    for (let i = 0; i < count; i++) if (cluster[i] === k && label[i] >= 0) { held.set(label[i], (held.get(label[i]) || 0) + 1); known++; }
    const top = [...held].sort((a, b) => b[1] - a[1])[0];
    if (top) words.push(`${Math.round(100 * top[1] / known)} % ${D.labels[top[0]]}`);
  }
  const box = group(`Cluster ${k + 1}`, c.central, [make("small", words.join(", ")), alone]);
  box.firstChild.prepend(dotted);
  $("clusters").append(box);
});
const tabs = [...document.querySelectorAll("[role=tab]")];
const open = name => tabs.forEach(t => { const on = t.dataset.tab === name; t.setAttribute("aria-selected", on); $(t.dataset.tab).hidden = !on; });
tabs.forEach(t => { t.onclick = () => open(t.dataset.tab); });
open(D.copies.length ? "copies" : "outliers");

const legend = () => {
  const box = $("legend");
  box.textContent = "";
  if (mode === "none") return;
  if (mode === "label" && value) {
    const scale = make("div", "", "scale"), bar = make("b"), say = v => make("span", `${+v.toPrecision(4)}`);
    bar.style.background = `linear-gradient(90deg, ${[0, .25, .5, .75, 1].map(ramp).join(", ")})`;
    scale.append(D.labels[0], say(low), bar, say(high)); box.append(scale);
    return;
  }
  const held = new Map();
  for (let i = 0; i < count; i++) held.set(kindOf(i), (held.get(kindOf(i)) || 0) + 1);
  const kinds = [...held.keys()].sort((a, b) => a < 0 ? 1 : b < 0 ? -1 : a - b);
  for (const kind of kinds) {
    const name = kind < 0 ? "no label" : mode === "cluster" ? `cluster ${kind + 1}` : D.labels[kind];
    const button = make("button"), mark = make("i");
    mark.style.background = kind < 0 ? css("--muted") : hue(kind);
    button.append(mark, name, make("small", number(held.get(kind))));
    button.setAttribute("aria-pressed", only === kind);
    button.classList.toggle("off", only !== -2 && only !== kind);
    button.onclick = () => { only = only === kind ? -2 : kind; refresh(); };
    box.append(button);
  }
};
const refresh = () => { recolour(); legend(); measure(); draw(); };
const measure = () => {
  const w = canvas.clientWidth, h = canvas.clientHeight, first = !W;
  if (w === W && h === H && ratio === (devicePixelRatio || 1)) return;
  const mx = (W / 2 - dx) / scale, my = (H / 2 - dy) / scale, before = scale / fit;
  W = w; H = h; ratio = devicePixelRatio || 1;
  canvas.width = W * ratio; canvas.height = H * ratio;
  if (first) return whole();
  fit = fitting(); scale = fit * before; dx = W / 2 - mx * scale; dy = H / 2 - my * scale;
  paint();
};
$("colour").onchange = e => { mode = e.target.value; only = -2; refresh(); };
$("pictures").onchange = draw;
$("in").onclick = () => zoom(1.5);
$("out").onclick = () => zoom(1 / 1.5);
$("fit").onclick = whole;
dark.addEventListener("change", refresh);
new ResizeObserver(measure).observe(canvas);
refresh();
})();
