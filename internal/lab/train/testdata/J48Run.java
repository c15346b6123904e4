import weka.classifiers.Evaluation;
import weka.classifiers.trees.J48;
import weka.core.Instances;
import weka.core.converters.ConverterUtils.DataSource;

// J48 TRAIN.arff TEST.arff: the root's attribute of the tree that J48 -S grows
// from one file, its size and the accuracy on the other.
public class J48Run {
    public static void main(String[] args) throws Exception {
        for (int i = 0; i + 1 < args.length; i += 2) {
            Instances train = DataSource.read(args[i]), test = DataSource.read(args[i + 1]);
            train.setClassIndex(train.numAttributes() - 1);
            test.setClassIndex(test.numAttributes() - 1);
            J48 tree = new J48();
            tree.setOptions(new String[] {"-C", "0.25", "-M", "2", "-S"});
            tree.buildClassifier(train);
            Evaluation e = new Evaluation(train);
            e.evaluateModel(tree, test);
            String root = tree.toString().split("\n")[3].trim().split(" ")[0];
            System.out.printf("%s %.0f %.4f%n", root, tree.measureTreeSize(), e.pctCorrect() / 100);
        }
    }
}
