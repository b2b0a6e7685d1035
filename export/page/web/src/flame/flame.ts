// The flame graph of what grew.
import type { FlameData } from "../data";
import { button, choice, make } from "../dom";
import { onTheme, onWidth, paperWidth } from "../theme";
import { share } from "../units";
import { describe, showComponents, showDetails, showPath } from "./controls";
import { Graph } from "./graph";
import { steer } from "./keys";
import { decode, type Frame, type Measure, search } from "./tree";

/** Shown is a graph that has been drawn. */
export interface Shown {
	/** fit makes it as wide as its element, which may have been hidden. */
	fit: () => void;
}

/** flame draws a flame graph into its element. The name distinguishes its radio buttons from those of other graphs. */
export function flame(chart: HTMLElement, data: FlameData, measures: [Measure, string][], name = ""): Shown {
	const drawn = new Flame(chart, decode(data), measures, name);
	return { fit: () => drawn.resize(chart.clientWidth) };
}

class Flame {
	readonly picked = new Set<string>();
	readonly components = make("div", { class: "components", role: "group", "aria-label": "Highlight the memory of a component" });
	readonly trail = make("nav", { class: "trail", "aria-label": "Zoomed into", hidden: true });
	readonly stage = make("div", { class: "stage" });
	readonly details = make("p", { class: "details" });
	readonly term = make("input", { type: "search", placeholder: "function, file", spellcheck: "false" });
	readonly found = make("output", { class: "found" });
	readonly graph: Graph;

	constructor(
		chart: HTMLElement,
		readonly root: Frame,
		readonly measures: [Measure, string][],
		readonly name: string,
	) {
		const graph = make("div", { class: "graph" }, this.stage, this.details);
		chart.append(this.toolbar(), this.components, this.trail, graph);
		this.graph = new Graph(this.stage, root, {
			describe: (frame) => describe(frame, root, this.graph?.measure ?? "resident"),
			pointed: (frame) => this.showFrame(frame),
			zoomed: (frame) => this.arrive(frame),
		});
		this.refresh();
		steer(this.graph);
		onWidth(chart, (width) => this.resize(width));
		onTheme((paper) => this.resize(paper ? paperWidth : chart.clientWidth));
	}

	toolbar(): HTMLElement {
		this.term.addEventListener("input", () => this.light());
		return make(
			"div",
			{ class: "toolbar" },
			...(this.measures.length > 1 ? [choice("Width", `measure${this.name}`, this.measures, (to) => this.setMeasure(to))] : []),
			make("label", { class: "search" }, "Search ", this.term),
			this.found,
			make(
				"span",
				{ class: "buttons" },
				button("Show all", () => this.reset(), { title: "Zoom out, highlight nothing (Esc zooms out)" }),
			),
		);
	}

	setMeasure(measure: Measure): void {
		this.graph.setMeasure(measure);
		this.refresh();
	}

	/** refresh updates all that is around the graph. */
	refresh(): void {
		showComponents(this.components, this.root, this.graph.measure, this.picked, () => this.light());
		this.light();
		this.showFrame(undefined);
	}

	/** resize makes it so wide; 0: it is hidden, and stays as it is. */
	resize(width: number): void {
		if (width > 0) {
			this.graph.resize(width);
			this.light();
		}
	}

	showFrame(frame: Frame | undefined): void {
		const focused = this.stage.contains(document.activeElement) ? this.graph.current : undefined;
		showDetails(this.details, frame ?? focused, this.root, this.graph.measure);
	}

	/** arrive follows a zoom. */
	arrive(frame: Frame): void {
		const zoom = (to: Frame) => {
			this.graph.zoom(to);
			this.graph.focus(to); // the button is gone
		};
		showPath(this.trail, frame, zoom);
		this.light();
		this.showFrame(frame);
	}

	/** light highlights what is searched for and whose components are picked. */
	light(): void {
		const text = this.term.value.trim();
		const found = text ? search(this.root, text, this.graph.measure) : undefined;
		this.found.textContent = found ? this.report(found.frames.size, found.value) : "";
		const lit = (frame: Frame) =>
			(found?.frames.has(frame) ?? true) && (this.picked.size === 0 || this.picked.has(frame.component));
		this.graph.light(found || this.picked.size > 0 ? lit : undefined);
	}

	report(frames: number, value: number): string {
		return `${frames} ${frames === 1 ? "frame" : "frames"}, ${share(value, this.root[this.graph.measure])} of all`;
	}

	reset(): void {
		this.term.value = "";
		this.picked.clear();
		this.graph.zoom(this.root);
		this.refresh();
	}
}
