// Runs test/*.ts by node's own test runner: node 18 reads no TypeScript, so they are bundled first.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";

const folder = mkdtempSync(join(tmpdir(), "allocscope-page-"));
try {
	const tests = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
	await build({
		entryPoints: tests.map((name) => join("test", name)),
		outdir: folder,
		outExtension: { ".js": ".mjs" },
		bundle: true,
		platform: "node",
		format: "esm",
		logLevel: "warning",
	});
	const files = readdirSync(folder).map((name) => join(folder, name));
	process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
	rmSync(folder, { recursive: true });
}
