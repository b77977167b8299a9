//! The files of the workspace, as a checkout has them.

use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

/// The text of a file, by its path from the workspace's folder.
pub fn read(path: &str) -> String {
    let full = root().join(path);
    fs::read_to_string(&full).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below a folder whose name ends like this, as paths from the workspace's folder, in order. Build
/// output and hidden folders other than `.ci` are left out.
pub fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    walk(&root(), &root().join(folder), ending, &mut found);
    found.sort();
    found
}

fn walk(root: &Path, folder: &Path, ending: &str, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.map(|entry| entry.expect("a readable folder")) {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && (!name.starts_with('.') || name == ".ci") {
                walk(root, &path, ending, found);
            }
        } else if name.ends_with(ending) {
            let relative = path.strip_prefix(root).expect("below the root");
            found.push(relative.to_string_lossy().replace('\\', "/"));
        }
    }
}
