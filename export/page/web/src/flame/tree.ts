// The tree of the flame graph, without its picture.
import type { FlameData, FlameTuple } from "../data";

export type Measure = "resident" | "objects";

/** A Frame with all that is above it. */
export interface Frame {
	name: string;
	component: string;
	/** Bytes and objects, those of its callees included. */
	resident: number;
	objects: number;
	parent: Frame | undefined;
	/** The largest first; undefined: none. */
	children?: Frame[];
}

/** decode makes the tree of the page's data. Nothing is smaller than what it is made of, and nothing is negative. */
export function decode(data: FlameData): Frame {
	const frame = ([name, component, resident, objects, children]: FlameTuple, parent?: Frame): Frame => {
		const self: Frame = { name: data.names[name] ?? "?", component: data.components[component] ?? "", resident, objects, parent };
		const below = (children ?? []).map((child) => frame(child, self)).sort((a, b) => b.resident - a.resident);
		self.resident = Math.max(resident, sum(below, "resident"));
		self.objects = Math.max(objects, sum(below, "objects"));
		return below.length > 0 ? Object.assign(self, { children: below }) : self;
	};
	return frame(data.root);
}

function sum(frames: Frame[], measure: Measure): number {
	return frames.reduce((total, frame) => total + frame[measure], 0);
}

/** walk visits a frame and all below it. */
export function walk(frame: Frame, visit: (frame: Frame) => void): void {
	visit(frame);
	frame.children?.forEach((child) => {
		walk(child, visit);
	});
}

/** path is the frames from the outermost down to this one. */
export function path(frame: Frame): Frame[] {
	return frame.parent ? [...path(frame.parent), frame] : [frame];
}

export interface Found {
	frames: Set<Frame>;
	/** The sum of what is found, nothing counted twice. */
	value: number;
}

/** search finds the frames whose names contain a text, in any case. */
export function search(root: Frame, text: string, measure: Measure): Found {
	const wanted = text.toLowerCase();
	const found: Found = { frames: new Set(), value: 0 };
	const visit = (frame: Frame, within: boolean) => {
		const fits = frame.name.toLowerCase().includes(wanted);
		if (fits) {
			found.frames.add(frame);
			found.value += within ? 0 : frame[measure];
		}
		frame.children?.forEach((child) => {
			visit(child, within || fits);
		});
	};
	visit(root, false);
	return found;
}

/** componentsOf is what each component holds, the largest first: what a frame has beyond its callees is its component's. */
export function componentsOf(root: Frame, measure: Measure): [component: string, value: number][] {
	const held = new Map<string, number>();
	walk(root, (frame) => {
		const own = frame[measure] - sum(frame.children ?? [], measure);
		if (own > 0) {
			held.set(frame.component, (held.get(frame.component) ?? 0) + own);
		}
	});
	return [...held].sort((a, b) => b[1] - a[1]);
}

/** narrowestDrawn is the width, atLeast or a power of two times that, of which no more than most frames are wider in a picture of that width. */
export function narrowestDrawn(root: Frame, measure: Measure, width: number, atLeast: number, most: number): number {
	const counts: number[] = []; // frames by how often atLeast doubles in their width
	walk(root, (frame) => {
		const times = Math.floor(Math.log2((width * frame[measure]) / (root[measure] || 1) / atLeast));
		if (times >= 0) {
			counts[times] = (counts[times] ?? 0) + 1;
		}
	});
	let drawn = 0;
	let times = counts.length;
	while (times > 0 && drawn + (counts[times - 1] ?? 0) <= most) {
		times--;
		drawn += counts[times] ?? 0;
	}
	return atLeast * 2 ** times;
}
