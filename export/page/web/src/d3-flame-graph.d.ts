// What of d3-flame-graph is used here.
declare module "d3-flame-graph" {
	import type { Selection } from "d3-selection";

	/** A frame as it is laid out. */
	export interface Placed<T> {
		data: T;
		value: number;
		depth: number;
		parent: Placed<T> | null;
		children?: Placed<T>[];
	}

	export interface FlameGraph<T> {
		(selection: Selection<HTMLElement, T, null, undefined>): void;
		width(pixels: number): this;
		cellHeight(pixels: number): this;
		inverted(rootOnTop: boolean): this;
		minFrameSize(pixels: number): this;
		transitionDuration(milliseconds: number): this;
		resetHeightOnZoom(on: boolean): this;
		getName(name: (frame: Placed<T>) => string): this;
		getValue(value: (frame: T) => number): this;
		getChildren(children: (frame: T) => T[] | undefined): this;
		label(text: (frame: Placed<T>) => string): this;
		color(fill: (frame: Placed<T>) => string): this;
		onClick(act: (frame: Placed<T>) => void): this;
		onHover(act: (frame: Placed<T>) => void): this;
		setDetailsHandler(act: (text: string | null) => void): this;
		zoomTo(frame: Placed<T>): void;
		resetZoom(): void;
		update(): this;
	}

	export default function flamegraph<T>(): FlameGraph<T>;
}
