// What the page's script draws. The Go side is export/report/data.go, where each field is explained.

export interface PageData {
	timeline?: TimelineData;
	flame?: FlameData;
	gpu_flames?: GPUFlame[];
}

export interface TimelineData {
	time_s: number[];
	steps?: (number | null)[];
	series: Curve[];
	phases: PhaseBand[] | null;
	gpu_phases?: PhaseBand[];
	marks: MarkLine[] | null;
	spikes: Span[] | null;
	probing: PhaseBand[] | null;
	changes: MarkLine[] | null;
	baseline_s?: number;
	slope?: Slope;
}

export interface Curve {
	key: string;
	label: string;
	unit: "bytes" | "count";
	shown: boolean;
	values: (number | null)[];
}

export interface Span {
	from_s: number;
	to_s: number;
}

export interface PhaseBand extends Span {
	kind: string;
	label: string;
}

export interface MarkLine {
	at_s: number;
	text: string;
}

export interface Slope extends Span {
	level_bytes: number;
	bytes_per_s: number;
	low_bytes_per_s: number;
	high_bytes_per_s: number;
	label: string;
}

export interface FlameData {
	names: string[];
	components: string[];
	root: FlameTuple;
	note?: string;
}

export interface GPUFlame extends FlameData {
	label: string;
}

/** Name, component (indexes), resident bytes, objects, children. */
export type FlameTuple = [number, number, number, number, FlameTuple[]?];

/** readData is the data inside the page; an empty one where the page has none. */
export function readData(): PageData {
	return JSON.parse(document.getElementById("data")?.textContent ?? "null") ?? {};
}
