// The stages of one step: a row for each stage, a column for each block.
const SVG = "http://www.w3.org/2000/svg", LABEL = 112, WIDTH = 352, ROW = 16;

const element = (name, attributes, text) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.append(text);
  return made;
};

// With times, a cell is filled from the left by its block's work, and after it by its waiting, both against the longest
// stage of any block; without times, a cell says only whether the block had a part in the stage.
export function draw(place, step) {
  const timed = step.unit === "ns", cell = (WIDTH - LABEL) / step.blocks, gap = Math.min(1.5, cell / 6);
  const all = step.stages.flatMap((stage) => stage.work.map((work, block) => (work ?? 0) + (stage.wait[block] ?? 0)));
  const longest = Math.max(1, ...all);
  const drawing = element("svg", { viewBox: `0 0 ${WIDTH} ${ROW * step.stages.length}`, role: "img" });
  drawing.setAttribute("aria-label", `${step.title}: ${step.stages.length} stages on ${step.blocks} blocks`);
  step.stages.forEach((stage, row) => {
    const y = row * ROW;
    drawing.append(element("text", { x: 0, y: y + 12 }, stage.stage));
    stage.work.forEach((work, block) => {
      const x = LABEL + block * cell, wait = stage.wait[block], room = cell - gap;
      const width = (part) => (timed ? (room * part) / longest : room);
      const bar = (kind, from, size) => element("rect", { class: kind, x: x + from, y: y + 1.5, width: size, height: ROW - 3 });
      const group = element("g", {});
      group.append(bar("none", 0, room));
      if (work !== null) group.append(bar("work", 0, width(work)));
      if (timed && wait) group.append(bar("wait", width(work), width(wait)));
      const times = timed ? `: work ${(work / 1000).toFixed(1)} us, waiting ${(wait / 1000).toFixed(1)} us` : "";
      group.append(element("title", {}, `${stage.stage}, block ${block}${work === null ? ": no part" : times}`));
      drawing.append(group);
    });
  });
  const legend = timed ? "Blue: work; yellow: waiting at the barrier after the stage." : "Blue: the block has a part in the stage.";
  place.replaceChildren(...[step.title, legend, step.reading].map((text) => {
    const line = document.createElement("p");
    line.className = "soft";
    line.textContent = text;
    return line;
  }));
  place.firstChild.after(drawing);
}
