"""The pose task from labelled pictures to keypoints in their pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from training.data.labelled import Picture
from training.tasks.frames import identity, mirror
from training.tasks.pose import Pose, PoseConfig, _MeanSquares
from training.tasks.pose_codec import encode
from training.tasks.warp import move

SIZE, HEATMAP = (128, 96), (32, 24)
COCO = PoseConfig(keypoints="coco17")


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def picture(people: int = 2, count: int = 17) -> Picture:
    """People scattered over a picture, all keypoints visible but the last."""
    keypoints = np.concatenate(
        (rng(1).uniform((30, 20), (150, 100), (people, count, 2)), np.full((people, count, 1), 2)), -1
    ).astype(np.float32)
    keypoints[:, -1] = 0
    low, high = keypoints[:, :-1, :2].min(1), keypoints[:, :-1, :2].max(1)
    image = np.zeros((120, 180, 3), np.uint8)
    for x, y, visibility in keypoints.reshape(-1, 3):
        if visibility:
            row, column = round(float(y)), round(float(x))
            image[row - 1 : row + 2, column - 1 : column + 2] = 255
    return Picture(
        image=image,
        mask=np.zeros((120, 180), bool),
        person=np.full((120, 180), -1, np.int16),
        keypoints=keypoints,
        boxes=np.concatenate((low, high + 1), -1),
        id="scatter",
    )


def perfect(task: Pose, targets: dict[str, torch.Tensor]) -> torch.Tensor:
    """The output of a perfect model, [1, K, h, w]."""
    points = targets["points"] * torch.tensor([HEATMAP[1] - 1.0, HEATMAP[0] - 1.0])
    return encode(points, targets["visible"], HEATMAP, task.config.sigma)[0][None]


def batched(*targets: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([one[name] for one in targets]) for name in targets[0]}


@pytest.mark.parametrize("decoder", ["fit", "dark"])
def test_what_a_perfect_model_says_of_drawn_crops_is_decoded_to_the_labels(decoder: str) -> None:
    task, scene = Pose(COCO.model_copy(update={"decoder": decoder})), picture()
    assert scene.keypoints is not None
    flipped = 0
    for key in range(25):
        person = key % 2
        frame = task.draw_frame(rng(key), scene, person, SIZE)
        flipped += frame.flipped
        _, targets = task.sample(scene, person, frame)
        result = task.decode(perfect(task, targets), [frame])
        visible = targets["visible"].numpy() > 0
        visible = visible[task.set.flip] if frame.flipped else visible
        near = np.abs(result.keypoints[0] - scene.keypoints[person, :, :2]).max(-1) * frame.scale
        inner = frame.points(scene.keypoints[person, :, :2])
        inner = ((inner > 10) & (inner < np.array((86, 118)))).all(-1) if decoder == "dark" else np.ones(17, bool)
        assert (near[visible & inner] < 0.1 * 4.2).all()  # 0.1 heatmap pixels
        assert not result.scores[0][~visible].any()
        assert visible.sum() > 0
    assert 5 < flipped < 20


def test_the_evaluation_crop_is_the_padded_box_else_the_keypoints_else_the_picture() -> None:
    task, scene = Pose(COCO), picture()
    assert scene.boxes is not None
    assert scene.keypoints is not None
    for person in range(2):
        frame = task.frame(scene, person, SIZE)
        x0, y0, x1, y1 = frame.boxes(scene.boxes[person])
        assert 0 < x0 < x1 < SIZE[1]
        assert 0 < y0 < y1 < SIZE[0]
        assert max((x1 - x0) / SIZE[1], (y1 - y0) / SIZE[0]) == pytest.approx(1 / 1.25, rel=0.02)
    boxless = Picture(image=scene.image, mask=scene.mask, person=scene.person, keypoints=scene.keypoints)
    np.testing.assert_allclose(task.frame(boxless, 1, SIZE).matrix, task.frame(scene, 1, SIZE).matrix, rtol=1e-5)
    nothing = Picture(image=scene.image, mask=scene.mask, person=scene.person)
    np.testing.assert_allclose(task.frame(nothing, 0, SIZE).points((89.5, 59.5)), (47.5, 63.5))


def test_the_crop_shows_the_keypoints_where_the_targets_say() -> None:
    task, scene = Pose(COCO), picture(people=1)
    frame = task.frame(scene, 0, SIZE)
    image, targets = task.sample(scene, 0, frame)
    assert image.shape == (*SIZE, 3)
    assert image.dtype == np.uint8
    points = (targets["points"].numpy() * (95, 127))[targets["visible"].numpy() > 0]
    for x, y in np.rint(points).astype(int):
        assert image[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2].max() > 60
    moved = task.targets(move(scene, frame, flip_keypoints=task.set.flip))
    torch.testing.assert_close(moved, targets)


def slow_loss(output: np.ndarray, targets: np.ndarray, weights: np.ndarray, hardest: int | None) -> float:
    """The two formulas in loops and float64, times 10."""
    people, count, height, width = output.shape
    means = np.zeros((people, count))
    for b in range(people):
        for k in range(count):
            for v in range(height):
                for u in range(width):
                    means[b, k] += weights[b, k] * (output[b, k, v, u] - targets[b, k, v, u]) ** 2 / (height * width)
    if hardest is None:
        return 10 * float(means.sum() / (people * count))
    return 10 * float(np.mean([sum(sorted(row, reverse=True)[:hardest]) / hardest for row in means]))


@pytest.mark.parametrize(("loss", "hardest"), [("mse", None), ("ohkm", 3)])
def test_losses_are_their_formulas(loss: str, hardest: int | None) -> None:
    task, scene = Pose(COCO.model_copy(update={"loss": loss, "hardest": hardest or 1})), picture()
    samples = [task.sample(scene, person, task.frame(scene, person, SIZE))[1] for person in range(2)]
    targets = batched(*samples)
    output = torch.rand(2, 17, 8, 6, generator=torch.Generator().manual_seed(0))
    points = targets["points"] * torch.tensor([5.0, 7.0])
    heatmaps = encode(points, targets["visible"], (8, 6))[0].double().numpy()
    expected = slow_loss(output.double().numpy(), heatmaps, targets["visible"].numpy(), hardest)
    losses = task.loss(output, targets)
    assert losses["loss_heatmap"].item() == pytest.approx(expected, rel=1e-4)
    assert task.loss(output.bfloat16(), targets)["loss_heatmap"].dtype == torch.float32


def test_the_gradient_of_the_loss_is_its_derivative() -> None:
    generator = torch.Generator().manual_seed(1)
    output, target = (torch.rand(2, 3, 4, 5, dtype=torch.float64, generator=generator) for _ in range(2))
    torch.autograd.gradcheck(_MeanSquares.apply, (output.requires_grad_(), target))
    torch.testing.assert_close(_MeanSquares.apply(output, target), (output - target).square().mean((-2, -1)))


def test_ohkm_takes_all_keypoints_of_a_smaller_set() -> None:
    scene = picture()
    losses = []
    for loss in ("mse", "ohkm"):
        task = Pose(COCO.model_copy(update={"loss": loss}))
        targets = batched(task.sample(scene, 0, task.frame(scene, 0, SIZE))[1])
        losses.append(task.loss(torch.zeros(1, 17, *HEATMAP), targets)["loss_heatmap"].item())
    assert losses[0] == pytest.approx(losses[1])


def test_a_perfect_output_has_no_loss_and_unlabelled_keypoints_no_gradient() -> None:
    task, scene = Pose(COCO), picture(people=1)
    targets = batched(task.sample(scene, 0, task.frame(scene, 0, SIZE))[1])
    losses = task.loss(perfect(task, {name: value[0] for name, value in targets.items()}), targets)
    assert losses["loss_heatmap"].item() < 1e-9
    assert losses["acc_pose"].item() == 1
    output = torch.zeros(1, 17, *HEATMAP, requires_grad=True)
    task.loss(output, targets)["loss_heatmap"].backward()
    assert output.grad is not None
    assert not output.grad[0, -1].any()
    assert output.grad[0, 0].any()


def test_minimising_the_loss_finds_the_keypoints() -> None:
    task, scene = Pose(COCO), picture(people=1)
    assert scene.keypoints is not None
    frame = task.frame(scene, 0, SIZE)
    targets = batched(task.sample(scene, 0, frame)[1])
    output = torch.zeros(1, 17, *HEATMAP, requires_grad=True)
    for _ in range(20):
        (gradient,) = torch.autograd.grad(task.loss(output, targets)["loss_heatmap"], output)
        with torch.no_grad():
            output -= gradient * output.numel() / 40  # half of the way: the loss is 10 times a mean of squares
    found = task.decode(output, [frame]).keypoints[0, :-1]
    assert np.abs(found - scene.keypoints[0, :-1, :2]).max() * frame.scale < 0.1 * 4.2  # 0.1 heatmap pixels


def test_accuracy_counts_maxima_within_5_percent() -> None:
    task = Pose(COCO)
    targets = {"points": torch.zeros(2, 17, 2), "visible": torch.zeros(2, 17)}
    targets["points"][:] = torch.tensor([0.5, 0.5])
    targets["visible"][:, :2] = 1
    targets["visible"][1, 1] = 0
    output = torch.zeros(2, 17, 41, 41)
    output[0, 0, 20, 20] = output[1, 0, 20, 23] = output[0, 1, 20, 22] = 1  # 3 and 2 of 41 pixels off
    assert task.loss(output, targets)["acc_pose"].item() == pytest.approx((0.5 + 1) / 2)


def test_the_flip_test_of_a_perfect_model_changes_nothing() -> None:
    task, scene = Pose(COCO), picture(people=1)
    frame = task.frame(scene, 0, SIZE)
    straight, mirrored = (perfect(task, task.sample(scene, 0, one)[1]) for one in (frame, frame.mirrored()))
    assert (task.unflip(mirrored) - straight).abs().max() < 0.02
    torch.testing.assert_close(task.unflip(task.unflip(mirrored)), mirrored, rtol=0, atol=0)
    one, other = task.decode(straight, [frame]), task.decode(mirrored, [frame.mirrored()])
    np.testing.assert_allclose(one.keypoints[:, :-1], other.keypoints[:, :-1], atol=0.1)
    np.testing.assert_allclose(one.scores, other.scores, atol=0.02)


def test_instance_scores_are_the_mean_of_what_is_above_the_threshold() -> None:
    task = Pose(COCO)
    prediction = task.decode(torch.zeros(2, 17, *HEATMAP), [identity(SIZE)] * 2)
    prediction.scores[0, :3] = (0.9, 0.5, 0.1)
    np.testing.assert_allclose(prediction.instance_scores((0.5, 1)), (0.35, 0))


def test_a_crop_with_few_keypoints_is_left_out_of_training() -> None:
    task = Pose(COCO)
    few, enough = ({"visible": (torch.arange(17) < seen).float()} for seen in (7, 8))
    assert task.rejection(few) == "7 keypoints in the crop, fewer than 8"
    assert task.rejection(enough) is None


def test_a_user_set_works_the_whole_way(tmp_path: Path) -> None:
    path = tmp_path / "three.yaml"
    path.write_text("{name: three, names: [a, b, c], sigmas: 0.05, flip_pairs: [[a, b]]}")
    task, scene = Pose(PoseConfig(keypoints=str(path))), picture(people=1, count=3)
    assert scene.keypoints is not None
    frame = task.frame(scene, 0, SIZE).mirrored()
    result = task.decode(perfect(task, task.sample(scene, 0, frame)[1]), [frame])
    np.testing.assert_allclose(result.keypoints[0, :2], scene.keypoints[0, :2, :2], atol=0.5)


def test_bad_input_says_what_is_allowed() -> None:
    task = Pose(COCO)
    with pytest.raises(ValueError, match="no such set"):
        PoseConfig(keypoints="coco18")
    with pytest.raises(ValueError, match="has 5 keypoints, coco17 has 17"):
        task.sample(picture(count=5), 0, mirror((120, 180)))
    with pytest.raises(ValueError, match="has no person 2: 2 are labelled"):
        task.targets(picture(), 2)
    with pytest.raises(ValueError, match=r"are \[B, 17, h, w\]"):
        task.decode(torch.zeros(1, 5, 8, 8), [identity(SIZE)])
    with pytest.raises(ValueError, match="frame of each person's crop"):
        task.decode(torch.zeros(2, 17, 8, 8), [identity(SIZE)])


def test_the_hardest_keypoints_alone_count_from_their_share_of_the_run_on() -> None:
    late = Pose(PoseConfig(keypoints="coco17", loss="ohkm", hardest=2, ohkm_from=0.75))
    always = Pose(PoseConfig(keypoints="coco17", loss="ohkm", hardest=2))
    never = Pose(PoseConfig(keypoints="coco17"))
    generator = torch.Generator().manual_seed(0)
    output = torch.rand(2, 17, 16, 12, generator=generator)
    targets = {"points": torch.rand(2, 17, 2, generator=generator), "visible": torch.ones(2, 17)}

    def loss(task: Pose, progress: float) -> float:
        return task.loss(output, targets, progress)["loss_heatmap"].item()

    assert loss(late, 0.0) == loss(late, 0.74) == loss(never, 0.9)
    assert loss(late, 0.75) == loss(late, 1.0) == loss(always, 0.0)
    assert loss(always, 0.0) > loss(never, 0.0)
