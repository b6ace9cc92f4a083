"""List the code of every error: what it means, and what to do. docs/errors.md is made of it (`make reference`)."""

# code → (meaning, fix)
CODES = {
    "answer.ambiguous-task": (
        "Model was trained on several tasks, and no task is named.",
        "Name the task of the rows with --task.",
    ),
    "answer.missing": ("File or run holds no predictions.", "Write them with `--predictions FILE` of `eval`."),
    "answer.pretrained-encoder": (
        "Model fills masks and gives no answers.",
        "Train the model on classes, or write vectors with t5prep embed.",
    ),
    "answer.unknown-task": ("Model was not trained on the named task.", "Name a task that the model was trained on."),
    "answer.unreadable": ("File of predictions cannot be read.", "Name a readable file of predictions."),
    "bucket.damaged-object": (
        "Bytes of the object do not match its checksum or its encoding.",
        "Run the command again. If the error stays, replace the object.",
    ),
    "bucket.damaged-upload": ("Uploaded object has a wrong checksum and was removed.", "Run the upload again."),
    "bucket.invalid-address": (
        "Address is not of the form gs://bucket/prefix.",
        "Write the address as gs://bucket/prefix, without a password.",
    ),
    "bucket.invalid-credentials": (
        "Bucket rejects the credentials of the account.",
        "Log in again: gcloud auth application-default login.",
    ),
    "bucket.local-path": (
        "Path is on one machine, and several machines need it.",
        "Use a path in a bucket: gs://BUCKET/NAME.",
    ),
    "bucket.missing-billing-project": (
        "Bucket is requester-pays and no billing project is set.",
        "Export the billing project, as the message shows.",
    ),
    "bucket.missing-permission": (
        "Account lacks a permission on the bucket.",
        "Grant the role with the gcloud command in the message.",
    ),
    "bucket.not-found": ("Bucket does not exist.", "Create the bucket, or correct its name."),
    "bucket.unavailable": ("Bucket cannot be reached.", "Run the same command again."),
    "bucket.unsupported-emulator": (
        "TensorFlow cannot reach the storage emulator.",
        "Use a local run folder, or unset STORAGE_EMULATOR_HOST.",
    ),
    "bucket.upload-stall": ("Upload made no progress for too long.", "Run the same upload again; it resumes."),
    "cache.damaged": ("Cached table cannot be read.", "Remove it: t5prep cache clear tables."),
    "cache.insufficient-space": (
        "Free space of the cache is smaller than the download.",
        "Free some space, or set T5PREP_CACHE to another folder.",
    ),
    "cache.missing-home": ("User has no home folder for the cache.", "Export T5PREP_CACHE=FOLDER."),
    "cache.unwritable": ("Cache folder cannot be written.", "Free some space, or set T5PREP_CACHE to another folder."),
    "checkpoint.base-mismatch": (
        "Adapters belong to other base weights than the current ones.",
        "Restore the base weights, or train the adapters from the start.",
    ),
    "checkpoint.damaged": (
        "File of a checkpoint is damaged or has a wrong size.",
        "Delete the checkpoint, and start the same command again.",
    ),
    "checkpoint.dataset-mismatch": (
        "Run was trained on other data than the current data.",
        "Give the same data, or start another run.",
    ),
    "checkpoint.model-mismatch": (
        "Weights of the checkpoint have other names or shapes than the model.",
        "Use the checkpoint with the model that it was trained with.",
    ),
    "checkpoint.schedule-mismatch": (
        "New run length changes learning rates of finished steps.",
        "Restore the length, choose a schedule without an end, or start another run.",
    ),
    "checkpoint.settings-mismatch": (
        "Run has other settings than the current ones.",
        "Restore the settings, or start another run.",
    ),
    "checkpoint.tokenizer-mismatch": (
        "Run was trained with another tokenizer than the data has.",
        "Give data of the same tokenizer, or start another run.",
    ),
    "checkpoint.unknown": ("Run has no checkpoint of this name.", "Name a listed checkpoint, best or last."),
    "checkpoint.unreadable": (
        "Checkpoint cannot be read.",
        "Check the path and its permissions, or choose another checkpoint.",
    ),
    "checkpoint.unsupported-schema": ("Checkpoint was written by another version of t5prep.", "Update t5prep."),
    "checkpoint.version-mismatch": (
        "Checkpoint was written with other library versions than the installed ones.",
        "Install those versions, or start another run.",
    ),
    "column.duplicate": ("Several columns of a file share a name.", "Rename the columns in the header of the file."),
    "column.excess-classes": (
        "Column has too many different values for classes.",
        "Choose another target column, or a T5 tokenizer.",
    ),
    "column.invalid-class": ("Class name in a column contains a comma or =.", "Rename the class in the source."),
    "column.invalid-name": (
        "Column name of a Parquet file is not UTF-8.",
        "Rename the column with the program that wrote the file.",
    ),
    "column.missing": ("Named or required column does not exist.", "Name a column that exists in the file."),
    "dataset.altered": (
        "Content of a dataset file differs from the manifest.",
        "Restore the file, or prepare the dataset again.",
    ),
    "dataset.class-mismatch": (
        "Dataset has other classes than the model.",
        "Prepare the dataset that the model was trained for.",
    ),
    "dataset.damaged": ("File of a dataset cannot be parsed.", "Find the damaged file: t5prep verify DATA."),
    "dataset.empty-split": ("Split of the dataset holds no records.", "Name another split, or prepare more rows."),
    "dataset.folder-expected": (
        "Dataset path is a file instead of a directory.",
        "Name the directory that contains the manifest.",
    ),
    "dataset.incomparable": (
        "Earlier dataset has another tokenizer, length limit or record form.",
        "Prepare both datasets with the same tokenizer and lengths.",
    ),
    "dataset.invalid-manifest": ("Manifest is malformed or incomplete.", "Prepare the dataset again."),
    "dataset.missing-index": ("Dataset has no index of its records.", "Prepare the dataset again, into another --out."),
    "dataset.missing-lengths": ("Dataset records no histogram of lengths.", "Prepare the dataset again."),
    "dataset.missing-manifest": (
        "Folder has no manifest, so it is not a prepared dataset.",
        "Name a prepared dataset, or finish preparing.",
    ),
    "dataset.missing-splits": ("Dataset has no split.", "Prepare the dataset again."),
    "dataset.mixed-settings": (
        "Datasets of one run were prepared with different settings.",
        "Prepare all datasets with the same settings.",
    ),
    "dataset.mixed-targets": (
        "Datasets of one run have different classes or kinds of targets.",
        "Train on the datasets one by one.",
    ),
    "dataset.not-found": ("Dataset folder does not exist.", "Correct the path of the dataset."),
    "dataset.remote": (
        "Dataset is in a bucket, and the command needs local files.",
        "Copy the dataset with gcloud storage.",
    ),
    "dataset.run-folder": (
        "Folder is a training run instead of a prepared dataset.",
        "Name a dataset, or run t5prep report on the run.",
    ),
    "dataset.stray-shard": (
        "Folder holds a shard that the manifest does not list.",
        "Remove the shard, or prepare the dataset again.",
    ),
    "dataset.target-mismatch": (
        "Dataset's targets are of another kind than the model's.",
        "Prepare the dataset with the model's kind of target, or choose another model.",
    ),
    "dataset.tokenizer-mismatch": (
        "Dataset was prepared with another tokenizer than the model's or the one of --tokenizer.",
        "Pass the dataset's tokenizer, or prepare the dataset with the model's: --tokenizer MODEL.",
    ),
    "dataset.tokenizer-unavailable": (
        "Tokenizer of the dataset cannot be loaded.",
        "Name its location with --tokenizer.",
    ),
    "dataset.unreadable": (
        "File of the dataset is missing or unreadable.",
        "Restore the file, or prepare the dataset again.",
    ),
    "dataset.unsupported-schema": (
        "Manifest has a schema of another t5prep version.",
        "Prepare the dataset again, or use the t5prep that wrote it.",
    ),
    "dataset.untrusted-tokenizer": (
        "Manifest names a tokenizer on the Hub that this user has never used.",
        "If you trust the author of the dataset, name the tokenizer with --tokenizer.",
    ),
    "device.address-space-limit": (
        "`ulimit -v` allows less address space than required.",
        "Raise the limit: ulimit -v unlimited.",
    ),
    "device.cpu-count-conflict": (
        "JAX was started with another number of CPU devices than requested.",
        "Start a new process, or change XLA_FLAGS.",
    ),
    "device.failure": (
        "Devices failed during the run, often because another host ended.",
        "Start the same command on all hosts; it resumes from the last checkpoint.",
    ),
    "device.faulty": ("Test step on the devices gave a loss that is not finite.", "Replace the devices."),
    "device.indivisible-batch": (
        "Batch cannot be divided equally among devices and accumulated parts.",
        "Choose a multiple that the message suggests.",
    ),
    "device.indivisible-shard": (
        "Number of devices is not a multiple of the setting `shard`.",
        "Set shard to a divisor of the number of devices.",
    ),
    "device.insufficient-memory": (
        "Program needs more memory than the device has.",
        "Use a smaller batch, a memory-saving setting, or larger devices; see t5prep plan.",
    ),
    "device.invalid-size": (
        "TPU type is not offered with this number of cores.",
        "Choose a size that exists, such as v5e-8.",
    ),
    "device.missing-tpu": ("Machine has no TPU.", "Run the command on a TPU VM, or remove --tpu."),
    "device.remote-tpu": (
        "TPU is named from another machine.",
        "Run the command on the TPU's own VM with --tpu local.",
    ),
    "device.several-hosts": (
        "Command runs on one host, and several hosts started it.",
        "Start the command on one host.",
    ),
    "device.unavailable": (
        "Accelerator is absent or does not respond.",
        "Check the device (nvidia-smi for a GPU) and its driver.",
    ),
    "device.unknown-type": ("TPU type is unknown.", "Choose a TPU type that the message lists."),
    "device.unreachable-host": (
        "Hosts of the run cannot connect to each other.",
        "Start the same command on all hosts.",
    ),
    "file.ambiguous-delimiter": (
        "Comma and semicolon both fit the first line.",
        "Name the delimiter with --delimiter.",
    ),
    "file.ambiguous-encoding": (
        "File can be decoded by two encodings with different results.",
        "Name the encoding with --encoding.",
    ),
    "file.binary-content": ("File is binary data instead of text.", "Unpack or convert the file, or name its format."),
    "file.damaged": (
        "Compressed, archive or Parquet file is damaged, or has another format than its name states.",
        "Fetch the file again, or name its format with --format.",
    ),
    "file.duplicate-member": (
        "Archive holds two members of the same name.",
        "Unpack the archive, keep one member, and name the directory.",
    ),
    "file.encrypted-archive": ("Archive member is encrypted.", "Unpack it with its password, and name the directory."),
    "file.inaccessible": (
        "File or directory cannot be read or written.",
        "Correct its permissions, or name another path.",
    ),
    "file.invalid-header": ("Header line cannot be parsed.", "Correct the header line of the file."),
    "file.invalid-json": (
        "File is not a single valid JSON document.",
        "Correct the JSON, or convert the rows to JSON lines.",
    ),
    "file.invalid-name": (
        "Name of a file or folder holds a NUL character, or bytes that are not UTF-8.",
        "Rename the file, or choose another name.",
    ),
    "file.missing-header": ("File is empty or has no header line.", "Add a header line that names the columns."),
    "file.missing-records": ("JSON document has no rows at the --records path.", "Correct the --records path."),
    "file.missing-records-path": (
        "File is one JSON document and the rows' path is unknown.",
        "Name the path of the rows with --records.",
    ),
    "file.oversized-archive": (
        "Archive unpacks beyond the limit for decompression bombs.",
        "If you trust the archive, raise the limit, as the message shows.",
    ),
    "file.oversized-document": (
        "JSON document or text exceeds the size limit.",
        "Convert the file to JSON lines, or use --format text.",
    ),
    "file.redundant-columns": ("File has a header, and --columns repeats it.", "Omit --columns."),
    "file.unequal-lines": (
        "Files of a line pair have different numbers of lines.",
        "Make the number of lines equal in both files.",
    ),
    "file.unknown-format": (
        "File name does not indicate a format.",
        "Name the format with --format, or exclude the file by a glob.",
    ),
    "file.unsafe-archive": (
        "Archive member is a link or leaves the archive.",
        "Ask the publisher for a sound archive.",
    ),
    "file.unsupported-archive": (
        "Archive type, compression or nesting depth is unsupported.",
        "Unpack the archive, and name the directory.",
    ),
    "file.unsupported-format": (
        "Spreadsheet or Arrow file cannot be read directly.",
        "Convert the file to CSV or Parquet.",
    ),
    "file.wrong-encoding": ("Text does not match the encoding.", "Name the encoding with --encoding."),
    "filter.altered": (
        "Filter file differs from the file that made the dataset.",
        "Restore the filter file that made the dataset.",
    ),
    "filter.failure": ("Filter raised an exception for a text.", "Correct the filter, or raise Reject in it."),
    "filter.import-failure": ("Filter's file raised an exception when it was imported.", "Correct the filter's file."),
    "filter.invalid-expression": ("Filter's pattern is not a regular expression.", "Correct the regular expression."),
    "filter.invalid-result": ("Filter returned something other than text.", "Return the text, or raise Reject."),
    "filter.invalid-value": ("Filter's setting has an invalid value.", "Give a value that t5prep filter lists."),
    "filter.missing-copy": (
        "Run has no copy of a filter's file that its data used.",
        "Copy the filter's file into the run's folder.",
    ),
    "filter.missing-function": ("Filter's file has no function of this name.", "Name a function of the file."),
    "filter.missing-setting": (
        "Filter lacks a setting that it needs.",
        "Give the setting, for example: --filter 'pattern:drop=EXPRESSION'.",
    ),
    "filter.unknown": ("No filter has this name.", "Name a filter that t5prep filter lists."),
    "filter.unknown-setting": (
        "Filter has no setting of this name, or the setting is not written as NAME=VALUE.",
        "Give a setting that t5prep filter lists, as NAME=VALUE.",
    ),
    "filter.unreadable": ("File of a filter cannot be read.", "Restore the file, or make it readable."),
    "hub.access-denied": (
        "Hub denies access, because the token is invalid or lacks rights.",
        "Log in with a token that can read the repository.",
    ),
    "hub.concurrent-change": ("Repository changed during the download.", "Run the command again."),
    "hub.gated-repository": (
        "Repository is gated and its terms are not accepted.",
        "Accept its terms on the Hub, and log in.",
    ),
    "hub.invalid-response": ("Address in HF_ENDPOINT does not answer like a Hub.", "Correct or unset HF_ENDPOINT."),
    "hub.missing-login": ("User is not logged in to the Hub.", "Log in: hf auth login."),
    "hub.missing-permission": ("Token has no write access to the Hub repository.", "Use a token with write access."),
    "hub.not-found": ("Hub has no such repository, or it is private.", "Correct the name, or log in: hf auth login."),
    "hub.offline-mode": ("HF_HUB_OFFLINE forbids a required download.", "Unset HF_HUB_OFFLINE."),
    "hub.unavailable": ("Hub cannot be reached, or fails.", "Run the command again later."),
    "hub.unexported-model": (
        "Folder to push is neither an exported model nor a tokenizer.",
        "Export the run first: t5prep export --model RUN --out FOLDER.",
    ),
    "hub.unknown-revision": ("Hub repository has no such revision.", "Name an existing branch, tag or commit."),
    "hub.upload-failure": (
        "Repository name is invalid, or the upload failed.",
        "Correct the problem that the message states, and push again.",
    ),
    "install.extra-missing": (
        "Optional dependency is not installed.",
        "Install the extra with the command in the message.",
    ),
    "install.incompatible-version": (
        "Installed version of a package is incompatible.",
        "Install the version that the message names.",
    ),
    "install.missing-extension": (
        "Compiled C extension of t5prep is missing.",
        "Install a wheel, or a C compiler, and reinstall t5prep.",
    ),
    "install.missing-program": ("Program that the command needs is not on PATH.", "Install the program."),
    "install.non-utf8-locale": ("Python decodes file names in an encoding other than UTF-8.", "Export PYTHONUTF8=1."),
    "install.unsupported-python": (
        "Package has no release for this version of Python.",
        "Use a supported version of Python.",
    ),
    "kaggle.access-denied": (
        "Kaggle dataset is private, or its terms are not accepted.",
        "Accept its terms on Kaggle, or use an authorized token.",
    ),
    "kaggle.invalid-credentials": (
        "Kaggle rejects the credentials, or their file is damaged.",
        "Save a new Kaggle API token.",
    ),
    "kaggle.invalid-response": ("Response does not come from Kaggle's API.", "Check for a proxy or a sign-in page."),
    "kaggle.missing-credentials": ("Kaggle dataset is not visible without credentials.", "Save a Kaggle API token."),
    "kaggle.not-found": (
        "Kaggle has no such dataset, version or file.",
        "Correct the name or the version of the dataset.",
    ),
    "kaggle.unavailable": ("Kaggle or its file host refuses the request.", "Run the command again later."),
    "model.dataset-folder": (
        "Path is a prepared dataset, not a model.",
        "Pass a run, an exported model or a Hub name.",
    ),
    "model.invalid-config": ("Configuration file of a model or adapter is malformed.", "Fetch the file again."),
    "model.lfs-pointer": ("Model file is a Git LFS pointer without its content.", "Fetch the content: git lfs pull."),
    "model.missing-config": ("Model has no config.json.", "Pass a directory in Hugging Face layout with config.json."),
    "model.missing-sentinels": (
        "Model has no embeddings for the sentinels of the data.",
        "Prepare the data with --marker none and without --keep-newlines.",
    ),
    "model.not-found": (
        "No run, model directory, known model or Hub model has this name.",
        "Correct the name, or pass a directory with config.json.",
    ),
    "model.short-positions": (
        "Inputs are longer than the model allows.",
        "Prepare the data with a smaller --input-length.",
    ),
    "model.unknown-type": ("Model is of a type that cannot be trained.", "Choose a model of a listed type."),
    "model.unreadable": ("File of a model cannot be read.", "Make the file readable."),
    "model.unsupported-config": (
        "Model's configuration has a value that t5prep does not compute.",
        "Choose a model with a supported value.",
    ),
    "model.unsupported-pooling": (
        "Model's own pooling is not fully supported.",
        "Choose a pooling: --pooling mean, first or none.",
    ),
    "model.unsupported-pretraining": (
        "Models of this type cannot be pre-trained.",
        "Choose a BERT, RoBERTa or ModernBERT.",
    ),
    "model.untied-embeddings": (
        "Model's mask head has a matrix of its own instead of the embeddings.",
        "Choose a model with tied embeddings.",
    ),
    "option.conflict": ("Options exclude each other.", "Omit one of the options."),
    "option.excess-spans": (
        "Inputs hide more spans than the tokenizer has sentinels.",
        "Choose shorter inputs, a lower noise density or a longer mean span.",
    ),
    "option.inapplicable": (
        "Option or its value cannot apply to this task, file, model or dataset.",
        "Omit the option, or choose the value that the message names.",
    ),
    "option.invalid-encoding": (
        "Encoding is unknown, or does not decode text.",
        "Use --encoding utf-8, or another text encoding.",
    ),
    "option.invalid-template": (
        "Template is malformed, or names no plain column.",
        "Write columns in braces, as in {question}.",
    ),
    "option.invalid-variable": (
        "Environment variable has an invalid value.",
        "Unset the variable, or correct its value.",
    ),
    "option.inverted-range": ("Minimum is above the maximum.", "Lower the minimum, or raise the maximum."),
    "option.malformed": ("Value of an option has a wrong type or form.", "Write the value as the message shows."),
    "option.misplaced": ("Option stands before the task name.", "Put the option after the task name."),
    "option.missing": ("Required option or argument is missing.", "Add the option or argument that the message names."),
    "option.missing-prerequisite": (
        "Option requires another option, or another value of one.",
        "Add what the message names, or omit the option.",
    ),
    "option.out-of-range": (
        "Value is outside of the allowed range.",
        "Choose a value within the bounds in the message.",
    ),
    "option.port-unavailable": ("Server cannot listen on the port.", "Choose another --port."),
    "option.repeated": ("Option or value occurs more than once.", "Give the option or value once."),
    "option.unexpected-argument": ("Argument belongs to no option.", "Quote globs, and put options of Beam after --."),
    "option.unknown": ("Option does not exist.", "Choose an option that the message lists."),
    "option.unknown-choice": ("Value is not among the choices.", "Choose a value that the message lists."),
    "option.unknown-command": ("Command does not exist.", "Choose a command that t5prep --help lists."),
    "output.concurrent-change": (
        "Another process changed the output during the upload.",
        "Stop the other process, and run the upload again.",
    ),
    "output.damaged-dataset": (
        "Output holds a dataset with an unreadable manifest.",
        "Choose another --out, or remove the dataset.",
    ),
    "output.different-settings": (
        "Output holds a result that was made with other settings.",
        "Give the same settings, choose another --out, or replace it (--overwrite, --fresh).",
    ),
    "output.directory": ("Output is a directory instead of a file.", "Name a file in the directory."),
    "output.exists": ("File or folder of the output exists.", "Choose another --out, or delete the existing one."),
    "output.file-size-limit": ("`ulimit -f` allows no larger file.", "Raise the limit: ulimit -f unlimited."),
    "output.foreign-file": (
        "Output holds a file that t5prep did not write.",
        "Choose another output, or move the file.",
    ),
    "output.inside-source": ("Output folder lies inside the source.", "Choose an --out outside of the source."),
    "output.link-loop": ("Output is a symbolic link that leads to itself.", "Choose another --out."),
    "output.locked": (
        "Another process is writing the output, or was killed while it wrote.",
        "Wait for it, or choose another output.",
    ),
    "output.no-space": ("Disk of the output is full.", "Free some space, or choose another output."),
    "output.rename-failure": (
        "Finished folder cannot be renamed to the output.",
        "Rename the folder by hand, as the message shows.",
    ),
    "output.root-folder": ("Output is the root of the disk.", "Choose a subfolder for --out."),
    "output.scratch-altered": (
        "Intermediate file was removed or changed during the job.",
        "Stop the process that changes it, and start the command again.",
    ),
    "output.source-overwrite": ("Output would replace the source of the dataset.", "Name another output file."),
    "output.temporary-folder-unwritable": (
        "Temporary folder has no room for the texts.",
        "Free some space, or set TMPDIR to another folder.",
    ),
    "output.unknown-format": (
        "Output file name does not indicate a format.",
        "Use an extension that the message lists.",
    ),
    "output.unsupported-overwrite": ("--overwrite does not work in a bucket.", "Choose another --out."),
    "output.unsupported-scheme": (
        "Output address is neither a directory nor gs://.",
        "Name a directory, or gs://BUCKET/NAME.",
    ),
    "output.unwritable": ("Output cannot be written.", "Choose another output, or correct its permissions."),
    "pipeline.dead-worker": (
        "Worker process ended unexpectedly, probably for lack of memory.",
        "Use fewer workers or fewer lines.",
    ),
    "pipeline.failure": ("Beam runner failed.", "Read the runner's message, and correct its cause."),
    "pipeline.missing-task": (
        "Worker has no package that defines the task.",
        "Pass the package after the other options: -- --extra_package=PACKAGE.whl.",
    ),
    "pipeline.out-of-memory": (
        "Machine or worker ran out of memory.",
        "Use fewer workers and a smaller budget: --workers 1 --memory 1GiB.",
    ),
    "pipeline.row-count-mismatch": (
        "Row counts do not add up, which is a bug of t5prep.",
        "Report the bug with the message and the file.",
    ),
    "pipeline.unguarded-script": (
        "Worker processes import a script that calls t5prep without a guard.",
        'Call t5prep under if __name__ == "__main__", or with workers=0.',
    ),
    "plan.compiler-failure": (
        "TPU compiler ended without a result.",
        "Choose a smaller --batch, or a machine with more memory.",
    ),
    "plan.oversized-model": ("Weights exceed the memory of the largest TPU.", "Correct the sizes in config.json."),
    "plan.oversized-step": (
        "One step needs more computation than any TPU can do.",
        "Choose a smaller --batch or --input-length.",
    ),
    "plan.packed-dataset": ("Lengths cannot be planned from a packed dataset.", "Name a dataset with another layout."),
    "plan.token-targets": (
        "Lengths cannot be planned for token-aligned labels.",
        "Use --input-length instead of --lengths.",
    ),
    "plan.unsupported-topology": ("TPU compiler does not know the topology.", "Choose another --tpu."),
    "recipe.invalid-toml": (
        "Recipe is not TOML in UTF-8, or is too large for a list of settings.",
        "Correct the recipe, or name a TOML file of settings.",
    ),
    "recipe.unknown": ("No built-in recipe has this name.", "Name a listed recipe, or a file that ends in .toml."),
    "recipe.unreadable": ("Recipe cannot be read.", "Check the recipe's path and permissions."),
    "row.example-missing": (
        "No row of the source makes an example.",
        "Correct the rows or the options, by the reasons in the message.",
    ),
    "row.missing": ("Source or list of rows is empty.", "Name a file with rows, or give at least one text or dict."),
    "row.missing-column-names": (
        "Rows are plain texts without column names.",
        "Give the rows as dicts, or name a file.",
    ),
    "row.mixed-types": ("Values of a column have different types.", "Give each column values of one type."),
    "row.oversized": ("Row exceeds the size limit.", "Name the true format with --format."),
    "row.text-missing": ("No row of the source has a text.", "Name the text column with --column, or another source."),
    "row.unknown-id": ("Id belongs to no row of the dataset.", "List the ids with t5prep table DATA ids.csv."),
    "row.wrong-type": ("Row has an unsupported Python type.", "Give a list of texts or dicts."),
    "run.dataset-mismatch": ("Run was not trained on this dataset.", "Name a dataset of the run."),
    "run.foreign-folder": ("Folder is not a training run.", "Name a folder that t5prep train wrote."),
    "run.interrupted": (
        "Signal stopped training, and a checkpoint was saved.",
        "Start the same command again to resume.",
    ),
    "run.missing-data": (
        "Training data of the run is not at its recorded path.",
        "Name its current path with --data DIR.",
    ),
    "run.no-checkpoint": ("Run has no checkpoint yet.", "Wait for the first checkpoint, or start the training again."),
    "run.not-found": ("Run does not exist.", "Correct the path, or train the run."),
    "run.unreadable": ("File of a run cannot be read.", "Restore the file, or name another run."),
    "run.unreadable-logs": (
        "TensorBoard logs of the run cannot be copied.",
        "Check the logs' permissions, and the space for the copy.",
    ),
    "setting.conflict": ("Setting excludes another setting or a kind of data.", "Remove one of the two."),
    "setting.inapplicable": ("Setting has no effect with the other settings or the data.", "Remove the setting."),
    "setting.invalid-rates": (
        "Number of rates differs from the number of datasets, or a rate is too small.",
        "Give one positive rate for each dataset.",
    ),
    "setting.malformed": ("Value of a setting has a wrong type or form.", "Write the value as the message shows."),
    "setting.missing-bucket": ("Records fit into none of the buckets.", "Add a bucket of the longest record's size."),
    "setting.missing-length": ("Length of training is not set.", "Set epochs or steps: --set epochs=3."),
    "setting.missing-value": ("Setting has no value.", "Write --set KEY=VALUE."),
    "setting.out-of-range": ("Value of a setting is outside its bounds.", "Choose a value within the bounds."),
    "setting.oversized-bucket": (
        "Largest bucket is longer than the dataset's rows.",
        "Choose buckets that fit: t5prep plan --lengths.",
    ),
    "setting.rare-bucket": (
        "None of the first batches has the length of the longest bucket.",
        "Check the step without buckets.",
    ),
    "setting.unavailable-metric": (
        "Evaluation does not compute the metric that selects the best checkpoint.",
        "Choose a listed metric or auto, or generate answers.",
    ),
    "setting.unequal-bucket": (
        "Buckets of token labels have unequal sides.",
        "Give buckets of equal sides: --set buckets=64x64.",
    ),
    "setting.unknown": ("No setting has this name.", "List all settings: t5prep train --settings"),
    "setting.unknown-choice": ("Value of a setting is not one of its choices.", "Choose one of the listed values."),
    "source.altered": (
        "Source file differs from the file that made the dataset.",
        "Restore the original file, or name it with --source.",
    ),
    "source.ambiguous-address": (
        "Two addresses differ only in secret values.",
        "Download one file, and name the local copy.",
    ),
    "source.ambiguous-config": ("Dataset has several configs, and none is chosen.", "Choose a config: SOURCE#CONFIG."),
    "source.broken-link": ("Source contains a link to a missing file.", "Remove the link, or restore its file."),
    "source.card-conflict": ("Dataset cards of the sources contradict each other.", "Prepare each source separately."),
    "source.concurrent-change": (
        "Source file changed or disappeared during reading.",
        "Wait until the file is complete, and run again.",
    ),
    "source.corpus-page": ("Address is a web page about a corpus.", "Write the source as the message shows."),
    "source.damaged-download": (
        "Download has a wrong size or checksum.",
        "Run again; if it persists, tell the publisher.",
    ),
    "source.dataset-folder": (
        "Source is a prepared dataset instead of raw files.",
        "Export its texts: t5prep table DATA rows.csv.",
    ),
    "source.duplicate-name": ("Two source files share a name.", "Rename one of the files."),
    "source.files-missing": (
        "Source has no file that rows can be read from, or its pattern matches none.",
        "Name another source, correct the pattern, or skip fewer files.",
    ),
    "source.insecure-redirect": ("Host redirects from https to http.", "Name the final https address."),
    "source.invalid-address": ("Address of the source is malformed.", "Write the address as the message shows."),
    "source.invalid-card": (
        "Metadata of the dataset card is malformed or unsupported.",
        "Name the splits with --split-files, or correct the card.",
    ),
    "source.invalid-glob": ("Glob pattern is malformed.", "Correct the glob pattern."),
    "source.invalid-response": ("Host sends an invalid or oversized response.", "Check for a proxy or a sign-in page."),
    "source.invalid-token": ("Token has a character that no token has.", "Copy the token again."),
    "source.link-local-redirect": (
        "Host redirects to a link-local address, where virtual machines have their credentials.",
        "Download the file, and name the local copy.",
    ),
    "source.missing-pair": ("File of a line pair has no counterpart.", "Name the folder, or both files by a glob."),
    "source.mixed-stdin": (
        "Standard input is named beside other sources.",
        "Save standard input to a file, and name the file.",
    ),
    "source.not-found": (
        "Source file, directory or object does not exist.",
        "Correct the path, or name the source with --source.",
    ),
    "source.rate-limit": ("Host demands a long wait.", "Run again after the wait."),
    "source.redacted-address": (
        "Manifest records an address without its secret.",
        "Name the address: --source ADDRESS.",
    ),
    "source.request-refused": ("Host refuses the request.", "Check the address in a browser, or download the file."),
    "source.special-file": ("Source is a pipe or device instead of a file.", "Save the stream to a file."),
    "source.stdin-closed": ("Standard input is closed.", "Pipe the rows into the command, or name a file."),
    "source.unavailable": (
        "Host cannot be reached, or fails repeatedly.",
        "Run the same command again later; downloads resume.",
    ),
    "source.unknown-config": ("Dataset has no such config.", "Name an existing config, or omit #CONFIG."),
    "source.unknown-scheme": ("Scheme of the source is unknown.", "Name a file, or a scheme that the message lists."),
    "source.unmatched-pattern": (
        "Pattern of --skip-files or --split-files matches no file.",
        "Choose a pattern that matches a file in the message.",
    ),
    "source.unreadable": ("Source file or directory cannot be read.", "Make it readable, or exclude it by a glob."),
    "source.unsupported-host": ("Host ignores required HTTP features.", "Download the file, and name the local copy."),
    "source.untrusted-address": (
        "Manifest names a source that this user has never read.",
        "If you trust the source, name it with --source.",
    ),
    "source.web-page": (
        "Host sends a web page instead of data.",
        "Open the address in a browser, or download the file.",
    ),
    "split.ambiguous": (
        "File names or dataset cards assign files to splits in contradictory ways.",
        "Name the splits with --split-files.",
    ),
    "split.insufficient-rows": ("Requested split size leaves too few rows.", "Choose fewer rows for the split."),
    "split.invalid-name": ("Name of a split is invalid.", "Name the splits with --split-files."),
    "split.invalid-shares": (
        "Split names repeat, or shares do not sum to 1.",
        "Name each split once, with shares that sum to 1.",
    ),
    "split.overlap": ("File belongs to two splits.", "Change the globs so that each file has one split."),
    "split.unknown": ("Dataset or source has no such split.", "Name a split that the message lists."),
    "step.compilation-failure": (
        "Compiler cannot compile the training step.",
        "Report the compiler's message with the command.",
    ),
    "step.nonfinite-gradient": (
        "Gradient norm of a step is not finite.",
        "Lower learning_rate, or use --set dtype=float32.",
    ),
    "step.nonfinite-loss": (
        "Loss of a step is not finite.",
        "Lower learning_rate, set clip_norm, or check the initial weights.",
    ),
    "task.example-failure": ("Code of the task fails at a row.", "Correct to_example, or raise Reject for such rows."),
    "task.import-failure": (
        "Task's file or package raised an exception when it was imported.",
        "Correct the task's file or package.",
    ),
    "task.invalid-columns": ("Task's columns function did not return Columns.", "Return Columns(inputs=[...])."),
    "task.invalid-name": (
        "Name of the task's file has characters that a task cannot have.",
        "Rename the file with letters, digits and _.",
    ),
    "task.missing-classes": (
        "Task has no classes, and the target needs them.",
        "Choose a task with classes, or a T5 tokenizer.",
    ),
    "task.missing-definition": ("Task's file defines no TASK.", "Define TASK = Task(to_example=..., columns=...)."),
    "task.not-found": ("Task's file does not exist.", "Correct the path, or name a task that t5prep tasks lists."),
    "task.oversized-class": ("Class word exceeds the target length.", "Raise --target-length."),
    "task.subset-unavailable": (
        "Archive of the subset contains no texts.",
        "Choose another subset, or prepare a file with the texts.",
    ),
    "task.syntax-error": ("Task's file is not valid Python.", "Correct the line that the message names."),
    "task.unknown": ("No task has this name.", "Name a task that t5prep tasks lists, or a file: ./mine.py."),
    "task.unreadable": ("Task's file cannot be read.", "Check the file's permissions."),
    "task.untrusted-code": ("Python code of another author is untrusted.", "Read the code, and add --trust-code."),
    "terminal.deleted-folder": ("Current folder was deleted.", "Change to another folder: cd."),
    "terminal.interrupted": ("User or system interrupted the command.", "Run the same command again."),
    "tokenizer.ambiguous-prefix-space": (
        "Versions 4 and 5 of transformers read add_prefix_space differently.",
        "Remove add_prefix_space from tokenizer_config.json.",
    ),
    "tokenizer.blank-added-token": (
        "Added token becomes white space when it is normalized.",
        "Add the token again with normalized=False.",
    ),
    "tokenizer.config-conflict": (
        "Files tokenizer.json and tokenizer_config.json disagree about a value.",
        "Write the same value in both files.",
    ),
    "tokenizer.damaged": ("File of the tokenizer is malformed.", "Fetch the tokenizer again."),
    "tokenizer.duplicate-sentinels": (
        "SentencePiece model has sentinels, and tokenizer_config.json adds more.",
        'Write "extra_ids": 0, and remove <extra_id_…>.',
    ),
    "tokenizer.encoder-required": (
        "Task needs an encoder's tokenizer, and this is a T5's.",
        "Choose an encoder's tokenizer, or the task span_corruption.",
    ),
    "tokenizer.file-conflict": (
        "Two files of the tokenizer give different ids.",
        "Remove the file that the model was not trained with.",
    ),
    "tokenizer.inconsistent-ids": (
        "Tokenizer's files give a token two ids, or an id that it cannot have.",
        "Save the tokenizer again with the library that made it.",
    ),
    "tokenizer.indistinct-classes": ("Two class names have identical tokens.", "Rename the classes with --label-map."),
    "tokenizer.invalid-sentencepiece": (
        "File is not a SentencePiece model.",
        "Pass a spiece.model file, its directory, or a Hub name.",
    ),
    "tokenizer.missing-file": ("Folder holds no tokenizer.", "Pass a folder with one of the listed files."),
    "tokenizer.missing-json": (
        "Tokenizer needs a tokenizer.json, which its folder lacks.",
        "Write tokenizer.json with the command in the message.",
    ),
    "tokenizer.missing-sentinels": (
        "Vocabulary has too few sentinel tokens.",
        "Choose a T5 tokenizer, shorter inputs, or no --keep-newlines.",
    ),
    "tokenizer.missing-template": (
        "Tokenizer's template has no special tokens for these rows.",
        "Add the template to the post_processor of tokenizer.json.",
    ),
    "tokenizer.missing-token": (
        "Tokenizer lacks a special token that the model needs.",
        "Choose a tokenizer that has the token.",
    ),
    "tokenizer.not-found": ("Tokenizer does not exist.", "Pass a spiece.model file, its directory, or a Hub name."),
    "tokenizer.oversized-vocabulary": (
        "Vocabulary size is too large for the training text.",
        "Choose a smaller --vocab-size, or train on more text.",
    ),
    "tokenizer.training-failure": (
        "SentencePiece could not train the tokenizer.",
        "Correct the cause that SentencePiece states.",
    ),
    "tokenizer.undersized-vocabulary": (
        "Vocabulary size is too small for the characters of the text.",
        "Choose a larger --vocab-size, or a lower --character-coverage.",
    ),
    "tokenizer.unreadable": ("File of the tokenizer cannot be read.", "Check the file's permissions."),
    "tokenizer.unsupported-added-token": (
        "Tokenizer adds a token to ByT5's bytes.",
        "Remove the token, or use a tokenizer with pieces.",
    ),
    "tokenizer.unsupported-class": (
        "Tokenizer's class makes transformers 5 replace steps of its tokenizer.json.",
        'Write "tokenizer_class": "PreTrainedTokenizerFast" in tokenizer_config.json.',
    ),
    "tokenizer.unsupported-json": ("Steps or model of tokenizer.json differ from a T5's.", "Use a T5's own tokenizer."),
    "tokenizer.vocabulary-mismatch": (
        "Tokenizer has more ids than the model has embeddings.",
        "Use the model's own tokenizer.",
    ),
    "weights.damaged": ("File of weights is truncated or malformed.", "Fetch the file again."),
    "weights.missing-base": (
        "Adapters' configuration names no base model.",
        "Write base_model_name_or_path in adapter_config.json.",
    ),
    "weights.missing-file": ("File or chunk that a checkpoint lists is missing.", "Fetch the checkpoint again."),
    "weights.missing-tensor": ("Weights lack a tensor that the model needs.", "Pass complete weights of the model."),
    "weights.no-tensors": ("File holds no tensors of a model.", "Pass a file of model weights."),
    "weights.nonfinite": ("Weights contain NaN or infinity.", "Choose another checkpoint, or export the model again."),
    "weights.not-found": ("Model has no file of weights.", "Pass a model with one of the listed files."),
    "weights.private-base": (
        "Base model of the adapters is unavailable to others.",
        "Export a complete model with --merge.",
    ),
    "weights.quantized": ("Weights are quantized.", "Pass the original checkpoint in float32, float16 or bfloat16."),
    "weights.several-models": ("File holds the weights of several models.", "Pass a checkpoint of one model."),
    "weights.shape-mismatch": (
        "Tensor has another shape than the model needs.",
        "Fetch weights and config.json again, or use the matching model.",
    ),
    "weights.unknown-tensor": (
        "Weights have a tensor that the model does not have.",
        "Fetch weights and config.json again, or merge the adapters.",
    ),
    "weights.unpublished": (
        "No weights are published for this model.",
        "Train with random weights: --set weights=random.",
    ),
    "weights.unsafe-pickle": (
        "Pickle holds code or values other than tensors.",
        "Convert the weights to safetensors where you trust the file.",
    ),
    "weights.unsupported-adapter": ("Adapters are of another kind than plain LoRA.", "Merge the adapters with peft."),
    "weights.unsupported-dtype": (
        "Tensor has a dtype other than float64, float32, float16 or bfloat16.",
        "Convert the weights to a supported dtype.",
    ),
    "weights.unsupported-format": (
        "Weights are stored in a format that t5prep does not read.",
        "Convert the weights to safetensors.",
    ),
    "weights.untrained-head": (
        "Weights of the model's head are missing.",
        "Train the model first: t5prep train --model MODEL --data DATA --out RUN.",
    ),
    "weights.wrong-format": (
        "File is not in the format that its name states.",
        "Fetch the file again, or pass another file.",
    ),
    "zenodo.access-denied": ("Zenodo denies access to the record.", "Export your token as ZENODO_TOKEN."),
    "zenodo.missing-file": (
        "Zenodo record has no such file, or no public file.",
        "Name a file of the record, or export ZENODO_TOKEN.",
    ),
    "zenodo.not-found": ("Zenodo has no such record.", "Copy the number from the address of the record."),
    "zenodo.unavailable": ("Zenodo refuses the request.", "Run the command again later."),
}
