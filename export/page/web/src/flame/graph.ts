// The picture, by d3-flame-graph: frames are drawn downwards from the root, each as wide as what it holds.
import flamegraph, { type FlameGraph, type Placed } from "d3-flame-graph";
import { select } from "d3-selection";
import { paint } from "../colors";
import { shorten } from "../units";
import { type Frame, type Measure, narrowestDrawn } from "./tree";

/** Narrower frames are not drawn until they are zoomed into, nor are more than so many; in pixels. */
const narrowest = 1.5;
const maxFrames = 2500;

/** The height of a frame, in pixels. */
const row = 20;

/** Hooks are called for what the reader does. */
export interface Hooks {
	describe: (frame: Frame) => string;
	pointed: (frame: Frame | undefined) => void;
	zoomed: (frame: Frame) => void;
}

/** A Drawn frame with its element. */
export interface Drawn extends Placed<Frame> {
	x0: number;
	x1: number;
	element: SVGGElement;
}

/** A Graph is the picture of a tree. */
export class Graph {
	measure: Measure = "resident";
	/** What is drawn, by frame. */
	drawn = new Map<Frame, Drawn>();
	/** The frame that has, or would have, the focus. */
	current: Frame;
	private zoomed: Frame;
	private readonly chart: FlameGraph<Frame>;

	constructor(
		readonly stage: HTMLElement,
		readonly root: Frame,
		readonly hooks: Hooks,
	) {
		this.current = root;
		this.zoomed = root;
		this.chart = flamegraph<Frame>()
			.width(stage.clientWidth)
			.cellHeight(row)
			.inverted(true)
			.minFrameSize(this.smallest(root))
			.transitionDuration(0)
			.resetHeightOnZoom(true)
			.getName((placed) => shorten(placed.data.name, 300))
			.getValue((frame) => frame[this.measure])
			.getChildren((frame) => frame.children)
			.label((placed) => hooks.describe(placed.data))
			.color(() => "none") // the style sheet colours
			.onHover((placed) => hooks.pointed(placed.data))
			.setDetailsHandler((text) => text === null && hooks.pointed(undefined))
			.onClick((placed) => {
				this.settle();
				hooks.zoomed(placed.data);
			});
		stage.addEventListener("click", (event) => this.prepare(event.target), { capture: true });
		this.chart(select<HTMLElement, Frame>(stage).datum(root));
		this.settle();
	}

	/** smallest is the width below which nothing is drawn when zoomed into a frame. */
	private smallest(zoomed: Frame): number {
		return narrowestDrawn(zoomed, this.measure, this.stage.clientWidth, narrowest, maxFrames);
	}

	/** prepare comes before the library zooms into the frame that was clicked. */
	private prepare(target: EventTarget | null): void {
		const element = target instanceof Element && target.closest("g");
		if (element) {
			this.zoomed = select<SVGGElement, Placed<Frame>>(element).datum().data;
			this.chart.minFrameSize(this.smallest(this.zoomed));
		}
	}

	zoom(frame: Frame): void {
		this.zoomed = frame;
		this.chart.minFrameSize(this.smallest(frame));
		const placed = this.drawn.get(frame);
		placed ? this.chart.zoomTo(placed) : this.chart.resetZoom();
	}

	setMeasure(measure: Measure): void {
		this.measure = measure;
		if (this.zoomed[measure] === 0) {
			this.zoom(this.root); // nothing is as wide as nothing
		}
		this.chart.minFrameSize(this.smallest(this.zoomed)).update();
		this.settle();
	}

	resize(width: number): void {
		this.chart.width(width).minFrameSize(this.smallest(this.zoomed)).update();
		this.settle();
	}

	/** settle collects what the library has drawn, and adds roles and colours. */
	private settle(): void {
		const svg = this.stage.querySelector("svg")!;
		svg.querySelector("text.title")?.remove();
		svg.setAttribute("role", "tree");
		svg.setAttribute("aria-label", "Flame graph");
		this.drawn.clear();
		select(svg)
			.selectAll<SVGGElement, Placed<Frame>>("g")
			.each((placed, i, elements) => {
				const drawn = Object.assign(placed, { element: elements[i]! }) as Drawn;
				this.drawn.set(placed.data, drawn);
				this.decorate(drawn);
			});
		const depth = Math.max(...Array.from(this.drawn.values(), (drawn) => drawn.depth));
		svg.setAttribute("height", String((depth + 1) * row));
		if (!this.drawn.has(this.current)) {
			this.current = this.root;
		}
		this.drawn.get(this.current)?.element.setAttribute("tabindex", "0");
	}

	private decorate({ element, data, depth }: Drawn): void {
		element.removeAttribute("name");
		element.setAttribute("role", "treeitem");
		element.setAttribute("aria-level", String(depth + 1));
		element.setAttribute("aria-label", this.hooks.describe(data));
		element.setAttribute("tabindex", "-1");
		paint(element, data.component);
	}

	/** light dims all frames but those; undefined: none. */
	light(lit: ((frame: Frame) => boolean) | undefined): void {
		for (const [frame, { element }] of this.drawn) {
			element.toggleAttribute("data-dim", lit !== undefined && !lit(frame));
			element.toggleAttribute("data-lit", lit?.(frame) ?? false);
		}
	}

	/** focus moves the focus to a frame that is drawn. */
	focus(frame: Frame): void {
		this.drawn.get(this.current)?.element.setAttribute("tabindex", "-1");
		this.current = frame;
		const element = this.drawn.get(frame)?.element;
		element?.setAttribute("tabindex", "0");
		element?.focus();
	}
}
