// The flame graph without a mouse.
import type { Drawn, Graph } from "./graph";
import type { Frame } from "./tree";

/** steer lets keys move from frame to frame, zoom into one and out. */
export function steer(graph: Graph): void {
	graph.stage.addEventListener("keydown", (event) => {
		const at = graph.drawn.get(graph.current);
		if (!at || event.ctrlKey || event.metaKey || event.altKey) {
			return;
		}
		const to = neighbour(event.key, at, graph);
		if (to) {
			graph.focus(to);
		} else if (event.key === "Enter" || event.key === " ") {
			graph.zoom(graph.current);
		} else if (event.key === "Escape") {
			graph.zoom(graph.root);
		} else if (!event.key.startsWith("Arrow")) {
			return;
		}
		event.preventDefault();
	});
	graph.stage.addEventListener("focusin", (event) => {
		for (const [frame, { element }] of graph.drawn) {
			if (element === event.target && frame !== graph.current) {
				graph.focus(frame);
			}
		}
		graph.hooks.pointed(graph.current);
	});
}

/** neighbour is the frame that a key leads to. */
function neighbour(key: string, at: Drawn, { drawn, root }: Graph): Frame | undefined {
	switch (key) {
		case "ArrowUp":
			return at.data.parent;
		case "ArrowDown":
			return at.data.children?.find((child) => drawn.has(child));
		case "ArrowLeft":
			return beside(at, drawn, -1);
		case "ArrowRight":
			return beside(at, drawn, 1);
		case "Home":
			return root;
	}
	return undefined;
}

/** beside is the next frame of the same depth to the left or to the right. */
function beside(at: Drawn, drawn: Map<Frame, Drawn>, direction: 1 | -1): Frame | undefined {
	const level = [...drawn.values()].filter((other) => other.depth === at.depth && other.x1 > other.x0);
	level.sort((a, b) => a.x0 - b.x0);
	return level[level.indexOf(at) + direction]?.data;
}
