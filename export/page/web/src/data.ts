// What the page's script draws. The Go side is export/report/data.go, where each field is explained.

export interface PageData {
	timeline?: TimelineData;
	flame?: FlameData;
	device_flames?: DeviceFlame[];
}

export interface TimelineData {
	time_s: number[];
	steps?: (number | null)[];
	series: Curve[];
	phases: PhaseBand[] | null;
	device_phases?: PhaseBand[];
	marks: MarkLine[] | null;
	spikes: Stretch[] | null;
	probing: PhaseBand[] | null;
	changes: MarkLine[] | null;
	boundary_s?: number;
	slope?: Slope;
}

export interface Curve {
	key: string;
	label: string;
	unit: "bytes" | "count";
	shown: boolean;
	values: (number | null)[];
}

export interface Stretch {
	from_s: number;
	to_s: number;
}

export interface PhaseBand extends Stretch {
	kind: string;
	label: string;
}

export interface MarkLine {
	at_s: number;
	text: string;
}

export interface Slope extends Stretch {
	level_bytes: number;
	bytes_per_s: number;
	low_bytes_per_s: number;
	high_bytes_per_s: number;
	label: string;
}

export interface FlameData {
	names: string[];
	owners: string[];
	root: FlameTuple;
	note?: string;
}

export interface DeviceFlame extends FlameData {
	label: string;
}

/** Name, owner (indexes), resident bytes, objects, children. */
export type FlameTuple = [number, number, number, number, FlameTuple[]?];

/** readData is the data inside the page; an empty one where the page has none. */
export function readData(): PageData {
	return JSON.parse(document.getElementById("data")?.textContent ?? "null") ?? {};
}
