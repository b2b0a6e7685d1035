// GPU memory beside that of the host, in one picture.
import type { Curve, TimelineData } from "../data";

/** isGPU is whether a curve is of memory on GPUs. */
export function isGPU(curve: Curve): boolean {
	return curve.key.startsWith("gpu_");
}

/** How many times as high the one may be as the other for both to be readable along one axis. */
const readable = 4;

/** areApart is whether GPU memory has an axis of its own: along that of the host the lower of the two would be flat. */
export function areApart(series: Curve[]): boolean {
	const highest = (of: Curve[]) =>
		of.reduce((most, { values }) => values.reduce<number>((high, value) => Math.max(high, value ?? 0), most), 0);
	const shown = series.filter((curve) => curve.shown && curve.unit === "bytes");
	const [gpu, host] = [highest(shown.filter(isGPU)), highest(shown.filter((curve) => !isGPU(curve)))];
	return gpu > 0 && host > 0 && Math.max(gpu, host) > readable * Math.min(gpu, host);
}

/** Scale is that of an axis: bytes of the host, or of all; bytes of GPUs; counts. */
export type Scale = "y" | "d" | "n";

/** scaleOf is the scale along which a curve is drawn. */
export function scaleOf(curve: Curve, apart: boolean): Scale {
	if (curve.unit === "count") {
		return "n";
	}
	return apart && isGPU(curve) ? "d" : "y";
}

/** strips is how many rows of phases there are: those of the host, and those of GPU memory where it is judged. */
export function strips({ gpu_phases }: TimelineData): number {
	return gpu_phases?.length ? 2 : 1;
}

/** namedCurves are those that are named in the picture, where there are two kinds of memory in it. */
export function namedCurves(series: Curve[]): { index: number; text: string }[] {
	const gpu = series.findIndex((curve) => curve.shown && isGPU(curve));
	const host = series.findIndex((curve) => curve.key === "rss");
	if (gpu < 0 || host < 0) {
		return [];
	}
	return [
		{ index: host, text: "RSS" },
		{ index: gpu, text: "GPU memory" },
	];
}
